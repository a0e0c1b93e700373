//! What is set for each of several things of a kind: `[TABLE.NAME]` in a file, `CAPSTAN_TABLE__NAME__KEY` in the
//! environment. All kinds are read the same way, and say what is different about them in a [`Table`].

use std::fmt;

use capstan_protocol::JsonObject;
use serde_json::Value;

use super::key::{WorkspaceRule, nearest_name};
use super::{ConfigError, channels, knowledge, models};

/// What separates the parts of a name in a variable.
const VARIABLE_SEPARATOR: &str = "__";

/// Every kind, in the order in which they are shown.
pub(super) const CONFIG_TABLES: [&ConfigTable; 3] =
    [&models::PROVIDER_TABLE, &channels::CHANNEL_TABLE, &knowledge::KNOWLEDGE_TABLE];

/// A kind of things that have settings of their own.
pub(super) struct ConfigTable {
    /// Its name in a file.
    pub(super) name: &'static str,
    /// What is in it, for people, and the name of one.
    pub(super) kind_and_example: (&'static str, &'static str),
    /// Everything that can be set for one.
    pub(super) keys: &'static [TableKey],
    /// What must be set for one, whatever else is.
    pub(super) required: Option<&'static str>,
    /// Whether one can have this name.
    pub(super) is_name: fn(&str) -> bool,
    /// What is said to one that cannot.
    pub(super) name_rule: &'static str,
    /// The name as it is meant that a variable has: not every letter can stand there.
    pub(super) canonical_name: fn(&str) -> String,
    /// Whether a workspace may set it where the user does not trust it.
    pub(super) workspace: WorkspaceRule,
}

/// Something that can be set for a thing of a kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableKey {
    pub(super) name: &'static str,
    pub(super) form: ValueForm,
    /// Whether it must never be shown.
    pub(super) secret: bool,
}

/// How a value is written in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// As a text.
    Text,
    /// As a text or a number.
    Number,
    /// As a table, which is kept as JSON.
    Table,
}

impl TableKey {
    pub(super) const fn new(name: &'static str, form: ValueForm) -> Self {
        Self { name, form, secret: false }
    }

    pub(super) const fn secret(name: &'static str, form: ValueForm) -> Self {
        Self { name, form, secret: true }
    }

    fn to_text(&self, value: toml::Value) -> Result<String, String> {
        match (self.form, value) {
            (ValueForm::Table, table @ toml::Value::Table(_)) => {
                serde_json::to_string(&table).map_err(|error| format!("cannot be read: {error}"))
            }
            (ValueForm::Table, _) => Err("must be a table".to_owned()),
            (ValueForm::Text | ValueForm::Number, toml::Value::String(text)) => Ok(text),
            (ValueForm::Number, toml::Value::Integer(number)) => Ok(number.to_string()),
            (ValueForm::Number, toml::Value::Float(number)) => Ok(number.to_string()),
            (ValueForm::Number, _) => Err("must be a text or a number".to_owned()),
            (ValueForm::Text, _) => Err("must be a text".to_owned()),
        }
    }
}

/// One setting of one thing; written `TABLE.NAME.KEY`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableSetting {
    table: &'static str,
    /// What it is set for.
    pub(super) item: String,
    key: &'static str,
}

impl fmt::Display for TableSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.table, self.item, self.key)
    }
}

impl TableSetting {
    /// The setting of this name. The name of a thing may have dots, that of a setting has none.
    pub(super) fn parse(name: &str) -> Option<Self> {
        CONFIG_TABLES.into_iter().find_map(|table| {
            let (of, key) = name.strip_prefix(table.name)?.strip_prefix('.')?.rsplit_once('.')?;
            table.find_setting(of, key)
        })
    }

    /// The setting of a variable, without the prefix and in small letters.
    pub(super) fn from_variable(name: &str) -> Option<Self> {
        CONFIG_TABLES.into_iter().find_map(|table| {
            let (of, key) =
                name.strip_prefix(table.name)?.strip_prefix(VARIABLE_SEPARATOR)?.rsplit_once(VARIABLE_SEPARATOR)?;
            table.find_setting(&(table.canonical_name)(of), key)
        })
    }

    pub(super) fn is_in_table(&self, table: &ConfigTable) -> bool {
        self.table == table.name
    }

    /// Whether its value must never be shown.
    pub(super) fn is_secret(&self) -> bool {
        self.table_key().is_some_and(|key| key.secret)
    }

    /// The texts of its value that must never be shown.
    pub(super) fn secrets(&self, value: &str) -> Vec<String> {
        let Some(key) = self.table_key().filter(|key| key.secret) else { return Vec::new() };
        if key.form != ValueForm::Table {
            return vec![value.to_owned()];
        }
        let inside: JsonObject = serde_json::from_str(value).unwrap_or_default();
        let values = inside.values().filter_map(Value::as_str);
        // A key after the name of a scheme, as in `Bearer KEY`, is a secret without it too.
        let keys = values.clone().filter_map(|value| Some(value.trim().split_once(' ')?.1.trim()));
        values.clone().chain(keys).map(str::to_owned).collect()
    }

    fn table_key(&self) -> Option<&'static TableKey> {
        CONFIG_TABLES.into_iter().find(|table| self.is_in_table(table))?.find_key(self.key)
    }
}

impl ConfigTable {
    fn find_key(&self, name: &str) -> Option<&'static TableKey> {
        self.keys.iter().find(|key| key.name == name)
    }

    fn find_setting(&self, of: &str, key: &str) -> Option<TableSetting> {
        let key = self.find_key(key)?.name;
        (self.is_name)(of).then(|| TableSetting { table: self.name, item: of.to_owned(), key })
    }

    /// The name of one of its settings.
    pub(super) fn setting_name(&self, of: &str, key: &str) -> String {
        format!("{}.{of}.{key}", self.name)
    }

    /// The settings of a file, as text.
    pub(super) fn parse_file_table(
        &self,
        path: &str,
        table: toml::Value,
    ) -> Result<Vec<(TableSetting, String)>, ConfigError> {
        let broken = |detail: String| ConfigError::Malformed { path: path.to_owned(), detail };
        let name = self.name;
        let toml::Value::Table(things) = table else {
            let (kind, example) = self.kind_and_example;
            return Err(broken(format!("{name} must be a table of {kind}, as in [{name}.{example}]")));
        };
        let mut settings = Vec::new();
        for (of, table) in things {
            if !(self.is_name)(&of) {
                return Err(broken(format!("the name of {name}.{of:?} {}", self.name_rule)));
            }
            let toml::Value::Table(table) = table else {
                return Err(broken(format!("{name}.{of} must be a table")));
            };
            if let Some(required) = self.required.filter(|_| table.is_empty()) {
                return Err(broken(format!("{name}.{of} has no {required}")));
            }
            for (key, value) in table {
                let Some(known) = self.find_key(&key) else {
                    let nearest = nearest_name(&key, self.keys.iter().map(|key| key.name)).map(str::to_owned);
                    return Err(ConfigError::UnknownKey {
                        path: path.to_owned(),
                        key: self.setting_name(&of, &key),
                        nearest,
                    });
                };
                let text =
                    known.to_text(value).map_err(|why| broken(format!("{} {why}", self.setting_name(&of, &key))))?;
                settings.push((TableSetting { table: name, item: of.clone(), key: known.name }, text));
            }
        }
        Ok(settings)
    }
}

/// A name that may have anything in it.
pub(super) fn is_not_empty(name: &str) -> bool {
    !name.is_empty()
}
/// What is said to one that has nothing.
pub(super) const NAME_NOT_EMPTY_RULE: &str = "must not be empty";
