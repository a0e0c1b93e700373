//! Derive macro for `capstan_protocol::CodedError`. Each variant states its error code in an attribute next to its
//! message.
//!
//! Use it through `capstan_protocol::CodedError`; the expansion refers to that crate by name.
//!
//! | attribute of a variant | effect |
//! |---|---|
//! | `#[code(StoreBusy)]` | `ErrorCode::StoreBusy` and its exit class |
//! | `#[code(SessionBusy, exit = Store)]` | the code with another exit class |
//! | `#[code(ConfigInvalid, hint = EXPR)]` | the code with another hint; `EXPR` is an `Option<&'static str>` and may use `self` |
//! | `#[code(transparent)]` | everything from the first field, its message included |
//! | `#[code(field = error)]` | code and exit class from the field `error` |
//!
//! The enum also gets `code()` as an inherent method, so that callers need not import the trait.
//! `#[code(plugin_codes)]` on the enum makes `code()` return a `FailureCode`, for errors that pass on codes defined by
//! plugins.

mod code_attribute;

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Member, Result, Variant};

use code_attribute::{CodeAttribute, CodeSource};

/// Derives `capstan_protocol::CodedError` for an enum whose variants have a `#[code(...)]` attribute.
#[proc_macro_derive(CodedError, attributes(code))]
pub fn derive_coded_error(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "CodedError can only be derived for enums"));
    };
    let has_plugin_codes = code_attribute::has_plugin_codes(&input.attrs)?;
    let variants: Vec<VariantArms> =
        data.variants.iter().map(|variant| VariantArms::new(variant, has_plugin_codes)).collect::<Result<_>>()?;
    let code_type = if has_plugin_codes { quote!(FailureCode) } else { quote!(ErrorCode) };
    let (code, exit) = (variants.iter().map(|arms| &arms.code), variants.iter().map(|arms| &arms.exit));
    let hint = variants.iter().map(|arms| &arms.hint);
    // Without a transparent variant the trait's default `message` suffices, and the enum need not implement `Display`.
    let message = variants.iter().any(|arms| arms.is_transparent).then(|| {
        let message = variants.iter().map(|arms| &arms.message);
        quote! {
            fn message(&self) -> ::std::string::String where Self: ::std::fmt::Display {
                match self { #(#message)* }
            }
        }
    });
    let (name, (impl_generics, type_generics, where_clause)) = (&input.ident, input.generics.split_for_impl());
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #name #type_generics #where_clause {
            /// Stable code of this error.
            #[allow(clippy::useless_conversion)]
            pub fn code(&self) -> ::capstan_protocol::#code_type {
                match self { #(#code)* }
            }
        }

        #[automatically_derived]
        impl #impl_generics ::capstan_protocol::CodedError for #name #type_generics #where_clause {
            type Code = ::capstan_protocol::#code_type;

            fn code(&self) -> Self::Code {
                Self::code(self)
            }

            fn exit_class(&self) -> ::capstan_protocol::ExitClass {
                match self { #(#exit)* }
            }

            #message

            fn hint(&self) -> ::std::option::Option<&'static str> {
                match self { #(#hint)* }
            }
        }
    })
}

/// Match arms of one variant, one for each method of the trait.
struct VariantArms {
    is_transparent: bool,
    code: TokenStream,
    exit: TokenStream,
    message: TokenStream,
    hint: TokenStream,
}

impl VariantArms {
    fn new(variant: &Variant, has_plugin_codes: bool) -> Result<Self> {
        let attribute = CodeAttribute::of(variant)?;
        let name = &variant.ident;
        let into = has_plugin_codes.then(|| quote!(.into()));
        let pattern = quote!(Self::#name { .. });
        let own_message = quote!(#pattern => ::std::string::ToString::to_string(self),);
        let own_hint = attribute.hint.map_or_else(|| quote!(::std::option::Option::None), |hint| quote!(#hint));
        let delegate = |field: &Member| {
            let field_pattern = quote!(Self::#name { #field: inner, .. });
            let code = quote!(#field_pattern => ::capstan_protocol::CodedError::code(inner) #into,);
            let exit = quote!(#field_pattern => ::capstan_protocol::CodedError::exit_class(inner),);
            (field_pattern, code, exit)
        };
        Ok(match &attribute.source {
            CodeSource::Named(code) => {
                let code = quote!(::capstan_protocol::ErrorCode::#code);
                let exit = attribute.exit.map(|class| quote!(::capstan_protocol::ExitClass::#class));
                let exit = exit.unwrap_or_else(|| quote!(#code.exit_class()));
                Self {
                    is_transparent: false,
                    code: quote!(#pattern => #code #into,),
                    exit: quote!(#pattern => #exit,),
                    message: own_message,
                    hint: quote!(#pattern => #own_hint,),
                }
            }
            CodeSource::Field(field) => {
                let (_, code, exit) = delegate(&Member::Named(field.clone()));
                Self { is_transparent: false, code, exit, message: own_message, hint: quote!(#pattern => #own_hint,) }
            }
            CodeSource::Transparent => {
                let Some(field) = variant.fields.members().next() else {
                    return Err(Error::new_spanned(
                        variant,
                        "a transparent variant needs a field that holds the error",
                    ));
                };
                let (field_pattern, code, exit) = delegate(&field);
                Self {
                    is_transparent: true,
                    code,
                    exit,
                    message: quote!(#field_pattern => ::capstan_protocol::CodedError::message(inner),),
                    hint: quote!(#field_pattern => ::capstan_protocol::CodedError::hint(inner),),
                }
            }
        })
    }
}
