//! `capstan tape list`.

use super::super::{print, print_json};
use super::source::home_tapes;
use crate::Failure;
use crate::command_line::Context;

pub(super) async fn list(context: &Context<'_>, json: bool) -> Result<(), Failure> {
    let records = home_tapes(context)?.list().await?;
    if json {
        return print_json(&records);
    }
    for record in &records {
        let session = record.session.as_ref().map_or("-", |session| session.as_str());
        let workspace = record.workspace.as_ref().map_or("-", |workspace| workspace.as_str());
        print(&format!(
            "{:34}  {:>7} entries  {session:20}  {workspace}",
            record.name.as_str(),
            record.head.to_string()
        ))?;
    }
    Ok(())
}
