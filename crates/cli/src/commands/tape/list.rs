//! `capstan tape list`.

use super::super::{print, print_json};
use super::source::Scope;
use crate::Failure;

pub(super) async fn list(scope: &Scope<'_>, json: bool) -> Result<(), Failure> {
    let records = scope.tapes()?.list().await?;
    if json {
        return print_json(&records);
    }
    for record in &records {
        let session = record.session.as_ref().map_or("-", |session| session.as_str());
        let workspace = record.workspace.as_ref().map_or("-", |workspace| workspace.as_str());
        print(&format!("{:34}  {:>9}  {session:20}  {workspace}", record.name.as_str(), record.head.to_string()))?;
    }
    Ok(())
}
