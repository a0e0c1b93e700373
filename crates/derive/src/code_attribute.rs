//! Parser of the `#[code(...)]` attribute. The documentation of the crate lists its forms.

use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Expr, Ident, Result, Token, Variant};

/// Arguments of the `#[code(...)]` attribute of a variant.
pub(crate) struct CodeAttribute {
    pub(crate) source: CodeSource,
    /// Variant of `ExitClass` to use instead of the exit class of the code.
    pub(crate) exit: Option<Ident>,
    /// Expression to use instead of the hint of the code.
    pub(crate) hint: Option<Expr>,
}

/// Source of the error code of a variant.
pub(crate) enum CodeSource {
    /// `NAME`: this variant of `ErrorCode`.
    Named(Ident),
    /// `field = NAME`: code and exit class of the error in this field.
    Field(Ident),
    /// `transparent`: code, exit class, message and hint of the error in the first field.
    Transparent,
}

impl CodeAttribute {
    /// Parses the attribute of a variant, which must have one.
    pub(crate) fn of(variant: &Variant) -> Result<Self> {
        match find_code_attribute(&variant.attrs) {
            Some(attribute) => attribute.parse_args(),
            None => Err(Error::new_spanned(variant, "the variant needs a #[code(...)] attribute")),
        }
    }
}

/// Returns true if an enum has the attribute `#[code(plugin_codes)]`. Any other `#[code(...)]` on an enum is an error.
pub(crate) fn has_plugin_codes(attributes: &[Attribute]) -> Result<bool> {
    let Some(attribute) = find_code_attribute(attributes) else { return Ok(false) };
    let argument: Ident = attribute.parse_args()?;
    if argument == "plugin_codes" { Ok(true) } else { Err(Error::new_spanned(argument, "expected `plugin_codes`")) }
}

fn find_code_attribute(attributes: &[Attribute]) -> Option<&Attribute> {
    attributes.iter().find(|attribute| attribute.path().is_ident("code"))
}

impl Parse for CodeAttribute {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let first: Ident = input.parse()?;
        let source = if first == "transparent" {
            CodeSource::Transparent
        } else if first == "field" {
            input.parse::<Token![=]>()?;
            CodeSource::Field(input.parse()?)
        } else {
            CodeSource::Named(first)
        };
        let mut attribute = Self { source, exit: None, hint: None };
        while !input.is_empty() {
            input.parse::<Token![,]>()?;
            let key: Ident = input.parse()?;
            input.parse::<Token![=]>()?;
            if key == "exit" && matches!(attribute.source, CodeSource::Named(_)) {
                attribute.exit = Some(input.parse()?);
            } else if key == "hint" && !matches!(attribute.source, CodeSource::Transparent) {
                attribute.hint = Some(input.parse()?);
            } else {
                return Err(Error::new_spanned(
                    &key,
                    "expected `exit` (after the name of a code) or `hint` (not after `transparent`)",
                ));
            }
        }
        Ok(attribute)
    }
}
