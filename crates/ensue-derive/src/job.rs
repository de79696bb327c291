//! The derive of `ensue::JobArgs`.

use crate::topic;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{DeriveInput, Error, LitStr, Result};

const WRITE: &str = "write `#[job(handler = \"mail.receipt\")]`";
/// The longest key of a handler.
const KEY_BYTES_MAX: usize = 255;

pub fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    if !input.generics.params.is_empty() {
        let reason =
            "the arguments of a job have one shape, so their type takes no parameters; write `impl JobArgs` yourself";
        return Err(Error::new_spanned(&input.generics, reason));
    }
    let handler = handler_of(&input)?;
    let key = handler.value();
    topic::check_part(&key).map_err(|reason| Error::new_spanned(&handler, format!("`handler` {reason}")))?;
    if key.len() > KEY_BYTES_MAX {
        let reason = format!("`handler` has {} bytes; at most {KEY_BYTES_MAX} are allowed", key.len());
        return Err(Error::new_spanned(&handler, reason));
    }
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl ::ensue::JobArgs for #name {
            const HANDLER: &'static str = #handler;
        }
    })
}

fn handler_of(input: &DeriveInput) -> Result<LitStr> {
    let mut handler = None;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("job")) {
        if !matches!(attribute.meta, syn::Meta::List(_)) {
            return Err(Error::new_spanned(attribute, format!("the handler is missing: {WRITE}")));
        }
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("handler") {
                return Err(meta.error(format!("unknown part: {WRITE}")));
            }
            let key: LitStr = meta
                .value()
                .and_then(|value| value.parse())
                .map_err(|error| Error::new(error.span(), format!("a text in quotes is missing: {WRITE}")))?;
            match handler.replace(key) {
                None => Ok(()),
                Some(_) => Err(meta.error(format!("a type of jobs has one handler: {WRITE}"))),
            }
        })?;
    }
    handler.ok_or_else(|| Error::new_spanned(&input.ident, format!("the handler is missing: {WRITE}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(attributes: &str) -> Result<TokenStream> {
        let input: TokenStream = format!("{attributes} struct SendReceipt {{ order: u64 }}").parse().unwrap();
        expand(input)
    }

    #[test]
    fn the_handler_is_what_the_attribute_says() {
        let code = expanded("#[job(handler = \"mail.receipt\")]").unwrap().to_string();
        assert!(code.contains("impl :: ensue :: JobArgs for SendReceipt"), "{code}");
        assert!(code.contains("HANDLER : & 'static str = \"mail.receipt\""), "{code}");
    }

    #[test]
    fn a_fault_says_what_to_write() {
        for (attributes, said) in [
            ("", "is missing: write"),
            ("#[job]", "is missing: write"),
            ("#[job()]", "is missing: write"),
            ("#[job(key = \"a\")]", "unknown part: write"),
            ("#[job(handler = 1)]", "a text in quotes"),
            ("#[job(handler = \"a\", handler = \"b\")]", "one handler"),
            ("#[job(handler = \"a..b\")]", "empty segment"),
        ] {
            let error = expanded(attributes).unwrap_err().to_string();
            assert!(error.contains(said), "{attributes}: {error}");
        }
    }
}
