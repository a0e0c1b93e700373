//! Parser of the `#[code(...)]` attribute.

use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, Expr, Ident, Result, Token, Variant};

/// Arguments of the `#[code(...)]` attribute of a variant.
pub(crate) struct CodeAttribute {
    pub(crate) source: CodeSource,
    /// Variant of `ExitClass` that replaces the one of the code.
    pub(crate) exit: Option<Ident>,
    /// Expression that replaces the hint of the code.
    pub(crate) hint: Option<Expr>,
}

/// Origin of the code of a variant.
pub(crate) enum CodeSource {
    /// A variant of `ErrorCode`.
    Named(Ident),
    /// The error in this field.
    Field(Ident),
    /// The error in the first field, message and hint included.
    Transparent,
}

impl CodeAttribute {
    pub(crate) fn of(variant: &Variant) -> Result<Self> {
        match code_attribute(&variant.attrs) {
            Some(attribute) => attribute.parse_args(),
            None => Err(Error::new_spanned(variant, "the variant needs a #[code(...)] attribute")),
        }
    }
}

/// Returns true if the enum has the attribute `#[code(plugin_codes)]`.
pub(crate) fn has_plugin_codes(attributes: &[Attribute]) -> Result<bool> {
    let Some(attribute) = code_attribute(attributes) else { return Ok(false) };
    let argument: Ident = attribute.parse_args()?;
    if argument == "plugin_codes" { Ok(true) } else { Err(Error::new_spanned(argument, "expected `plugin_codes`")) }
}

fn code_attribute(attributes: &[Attribute]) -> Option<&Attribute> {
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
