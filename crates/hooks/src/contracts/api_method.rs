//! The methods of the run API, by name.

use std::fmt;

/// Declares the methods, each by its group and its own name.
macro_rules! methods {
    ($($variant:ident = $name:literal),+ $(,)?) => {
        /// A method of the run API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ApiMethod {
            $(#[doc = concat!("`", $name, "`")] $variant),+
        }

        impl ApiMethod {
            /// Every method there is.
            pub const METHODS: &[Self] = &[$(Self::$variant),+];

            /// The method as it is written: its group, a dot, its name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}

methods! {
    ModelsStream = "models.stream",
    ModelsInvoke = "models.invoke",
    ModelsCountTokens = "models.count_tokens",
    ModelsRerank = "models.rerank",
    ToolsList = "tools.list",
    ToolsDetail = "tools.detail",
    ToolsCall = "tools.call",
    ToolsCommand = "tools.command",
    ToolsRefuseCommand = "tools.refuse_command",
    TapeView = "tape.view",
    TapeHandoff = "tape.handoff",
    TapeNote = "tape.note",
    TapeSay = "tape.say",
    TapeReset = "tape.reset",
    TapeInfo = "tape.info",
    TapeAnchors = "tape.anchors",
    TapeSearch = "tape.search",
    PromptSystem = "prompt.system",
    PromptContinuation = "prompt.continuation",
    SteeringTake = "steering.take",
    SessionModel = "session.model",
    SessionChooseModel = "session.choose_model",
    ArtifactsDescribe = "artifacts.describe",
    ArtifactsRead = "artifacts.read",
    ArtifactsCreate = "artifacts.create",
    RunsChild = "runs.child",
    StateGet = "state.get",
    StateSet = "state.set",
    StateList = "state.list",
    StateDelete = "state.delete",
    StoragePut = "storage.put",
    StorageGet = "storage.get",
    StorageList = "storage.list",
    StorageDelete = "storage.delete",
    HistoryPage = "history.page",
    HistorySearch = "history.search",
    EventsGet = "events.get",
    EventsPage = "events.page",
    KnowledgeList = "knowledge.list",
    KnowledgeRetrieve = "knowledge.retrieve",
    PlatformCall = "platform.call",
}

impl fmt::Display for ApiMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::ApiMethod;

    /// The files in which the groups of the run API are declared.
    const CONTRACT_SOURCES: [&str; 6] = [
        include_str!("run_api.rs"),
        include_str!("artifacts.rs"),
        include_str!("child_runs.rs"),
        include_str!("history.rs"),
        include_str!("stored_state.rs"),
        include_str!("platform.rs"),
    ];

    /// The methods of every group, as `group.method`. What is no `async fn` is no call.
    fn declared_methods() -> BTreeSet<String> {
        let mut methods = BTreeSet::new();
        let mut group = None;
        for line in CONTRACT_SOURCES.iter().flat_map(|text| text.lines()) {
            if let Some((name, _)) = line.strip_prefix("pub trait ").and_then(|rest| rest.split_once("Api:")) {
                group = Some(name.to_lowercase());
            } else if line == "}" {
                group = None;
            }
            let method = line.strip_prefix("    async fn ").and_then(|rest| rest.split_once('('));
            if let (Some(group), Some((method, _))) = (&group, method) {
                methods.insert(format!("{group}.{method}"));
            }
        }
        methods
    }

    #[test]
    fn k04_every_method_is_documented_once() {
        let page = include_str!("../../../../docs/run-api.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
        let mut documented: Vec<&str> = rows.map(|(method, _)| method).collect();
        let mut methods: Vec<&str> = ApiMethod::METHODS.iter().map(|method| method.as_str()).collect();
        documented.sort_unstable();
        methods.sort_unstable();
        assert_eq!(documented, methods);
    }

    #[test]
    fn k04_every_method_of_the_run_api_has_a_name_and_every_name_is_one() {
        let named: BTreeSet<String> = ApiMethod::METHODS.iter().map(ToString::to_string).collect();
        assert_eq!(named, declared_methods());
    }
}
