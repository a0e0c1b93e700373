//! The schemas, the error codes and the pages made from them.

mod error_codes;
mod run_api_page;
mod schemas;
