//! Tables of named items: `[TABLE.NAME]` in a file, `CAPSTAN_TABLE__NAME__KEY` in the environment.
//!
//! Providers, channels and knowledge bases are read by the same code. A [`ConfigTable`] describes the differences.

use std::fmt;

use capstan_hooks::visit_secret_texts;
use capstan_protocol::JsonObject;
use serde_json::Value;

use super::key::{WorkspaceRule, nearest_name};
use super::layer::CONFIG_SECRET_MASK;
use super::url_secrets::mask_url_secrets;
use super::{ConfigError, channels, knowledge, models};

/// Separator of the parts of a variable name.
const VARIABLE_SEPARATOR: &str = "__";

/// All tables, in the order of `capstan config show`.
pub(super) const CONFIG_TABLES: [&ConfigTable; 3] =
    [&models::PROVIDER_TABLE, &channels::CHANNEL_TABLE, &knowledge::KNOWLEDGE_TABLE];

/// A table whose items have settings of their own.
pub(super) struct ConfigTable {
    /// Name in files.
    pub(super) name: &'static str,
    /// Plural of the kind of items, and the name of an example, for error messages.
    pub(super) kind_and_example: (&'static str, &'static str),
    /// Keys of an item.
    pub(super) keys: &'static [TableKey],
    /// Key that every item needs.
    pub(super) required: Option<&'static str>,
    /// Validates the name of an item.
    pub(super) is_valid_name: fn(&str) -> bool,
    /// Rule for names, for error messages.
    pub(super) name_rule: &'static str,
    /// Maps the name in a variable to the name of the item, because variables cannot contain every character.
    pub(super) canonical_name: fn(&str) -> String,
    /// Permission of an untrusted workspace.
    pub(super) workspace: WorkspaceRule,
}

/// A key of the items of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct TableKey {
    pub(super) name: &'static str,
    pub(super) form: ValueForm,
    /// Never shown, logged or printed.
    pub(super) secret: bool,
}

/// Form of a value in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ValueForm {
    /// A string.
    Text,
    /// A string or a number.
    Number,
    /// A table, stored as JSON.
    Table,
    /// A list of strings, separated by commas except in files.
    List,
}

/// Rule for lists, for error messages.
const LIST_RULE: &str = "must be a list of strings without commas";

/// Items of a list, without white space around them.
pub(super) fn split_list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|item| !item.is_empty())
}

impl TableKey {
    pub(super) const fn new(name: &'static str, form: ValueForm) -> Self {
        Self { name, form, secret: false }
    }

    pub(super) const fn secret(name: &'static str, form: ValueForm) -> Self {
        Self { name, form, secret: true }
    }

    fn to_text(self, value: toml::Value) -> Result<String, String> {
        match (self.form, value) {
            (ValueForm::Table, table @ toml::Value::Table(_)) => {
                serde_json::to_string(&table).map_err(|error| format!("cannot be read: {error}"))
            }
            (ValueForm::Table, _) => Err("must be a table".to_owned()),
            (ValueForm::List, toml::Value::Array(values)) => {
                let is_item = |value: &toml::Value| value.as_str().is_some_and(|text| !text.contains(','));
                let items: Vec<&str> = values.iter().filter_map(toml::Value::as_str).collect();
                let is_valid = values.iter().all(is_item);
                if is_valid { Ok(items.join(",")) } else { Err(LIST_RULE.to_owned()) }
            }
            (ValueForm::Text | ValueForm::Number | ValueForm::List, toml::Value::String(text)) => Ok(text),
            (ValueForm::List, _) => Err(LIST_RULE.to_owned()),
            (ValueForm::Number, toml::Value::Integer(number)) => Ok(number.to_string()),
            (ValueForm::Number, toml::Value::Float(number)) => Ok(number.to_string()),
            (ValueForm::Number, _) => Err("must be a string or a number".to_owned()),
            (ValueForm::Text, _) => Err("must be a string".to_owned()),
        }
    }
}

/// A key of one item, displayed as `TABLE.NAME.KEY`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TableSetting {
    table: &'static str,
    /// Name of the item.
    pub(super) item: String,
    key: &'static str,
}

impl fmt::Display for TableSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.table, self.item, self.key)
    }
}

impl TableSetting {
    /// Parses `TABLE.NAME.KEY`. The name of an item may contain dots, a key does not.
    pub(super) fn parse(name: &str) -> Option<Self> {
        CONFIG_TABLES.into_iter().find_map(|table| {
            let (item, key) = name.strip_prefix(table.name)?.strip_prefix('.')?.rsplit_once('.')?;
            table.find_setting(item, key)
        })
    }

    /// Parses the name of a variable, without its prefix and in lower case.
    pub(super) fn from_variable(name: &str) -> Option<Self> {
        CONFIG_TABLES.into_iter().find_map(|table| {
            let (item, key) =
                name.strip_prefix(table.name)?.strip_prefix(VARIABLE_SEPARATOR)?.rsplit_once(VARIABLE_SEPARATOR)?;
            table.find_setting(&(table.canonical_name)(item), key)
        })
    }

    pub(super) fn is_in_table(&self, table: &ConfigTable) -> bool {
        self.table == table.name
    }

    /// Checks if the value must never be shown.
    pub(super) fn is_secret(&self) -> bool {
        self.table_key().is_some_and(|key| key.secret)
    }

    /// Parts of the value that must never be shown.
    pub(super) fn secrets(&self, value: &str) -> Vec<String> {
        let Some(key) = self.table_key() else { return Vec::new() };
        let object = || serde_json::from_str::<JsonObject>(value).unwrap_or_default();
        match (key.secret, key.form) {
            (true, ValueForm::Text | ValueForm::Number) => vec![value.to_owned()],
            (true, ValueForm::List) => split_list(value).map(str::to_owned).collect(),
            (true, ValueForm::Table) => {
                let object = object();
                let values = object.values().filter_map(Value::as_str);
                // The key after an authentication scheme, as in `Bearer KEY`, is a secret by itself too.
                let keys = values.clone().filter_map(|value| Some(value.trim().split_once(' ')?.1.trim()));
                values.clone().chain(keys).map(str::to_owned).collect()
            }
            (false, ValueForm::Table) => {
                let mut secrets = Vec::new();
                visit_secret_texts(&mut Value::Object(object()), &mut |text| secrets.push(text.clone()));
                secrets
            }
            (false, ValueForm::Text | ValueForm::Number | ValueForm::List) => Vec::new(),
        }
    }

    /// Value as it may be shown, for a setting that is not secret as a whole.
    pub(super) fn mask(&self, value: &str) -> String {
        let is_table = self.table_key().is_some_and(|key| key.form == ValueForm::Table);
        match serde_json::from_str::<Value>(value).ok().filter(|_| is_table) {
            Some(mut object) => {
                visit_secret_texts(&mut object, &mut |text| CONFIG_SECRET_MASK.clone_into(text));
                object.to_string()
            }
            None => mask_url_secrets(value),
        }
    }

    fn table_key(&self) -> Option<&'static TableKey> {
        CONFIG_TABLES.into_iter().find(|table| self.is_in_table(table))?.find_key(self.key)
    }
}

impl ConfigTable {
    fn find_key(&self, name: &str) -> Option<&'static TableKey> {
        self.keys.iter().find(|key| key.name == name)
    }

    fn find_setting(&self, item: &str, key: &str) -> Option<TableSetting> {
        let key = self.find_key(key)?.name;
        (self.is_valid_name)(item).then(|| TableSetting { table: self.name, item: item.to_owned(), key })
    }

    /// Full name of a key of an item.
    pub(super) fn setting_name(&self, item: &str, key: &str) -> String {
        format!("{}.{item}.{key}", self.name)
    }

    /// Settings of this table in a file, as text.
    pub(super) fn parse_file_table(
        &self,
        path: &str,
        table: toml::Value,
    ) -> Result<Vec<(TableSetting, String)>, ConfigError> {
        let malformed = |detail: String| ConfigError::Malformed { path: path.to_owned(), detail };
        let name = self.name;
        let toml::Value::Table(items) = table else {
            let (kind, example) = self.kind_and_example;
            return Err(malformed(format!("{name} must be a table of {kind}, as in [{name}.{example}]")));
        };
        let mut settings = Vec::new();
        for (item, table) in items {
            if !(self.is_valid_name)(&item) {
                return Err(malformed(format!("the name of {name}.{item:?} {}", self.name_rule)));
            }
            let toml::Value::Table(table) = table else {
                return Err(malformed(format!("{name}.{item} must be a table")));
            };
            if let Some(required) = self.required.filter(|_| table.is_empty()) {
                return Err(malformed(format!("{name}.{item} has no {required}")));
            }
            for (key, value) in table {
                let Some(known) = self.find_key(&key) else {
                    let nearest = nearest_name(&key, self.keys.iter().map(|key| key.name)).map(str::to_owned);
                    return Err(ConfigError::UnknownKey {
                        path: path.to_owned(),
                        key: self.setting_name(&item, &key),
                        nearest,
                    });
                };
                let text = known
                    .to_text(value)
                    .map_err(|reason| malformed(format!("{} {reason}", self.setting_name(&item, &key))))?;
                settings.push((TableSetting { table: name, item: item.clone(), key: known.name }, text));
            }
        }
        Ok(settings)
    }
}

/// Validates a name that may contain any characters.
pub(super) fn is_not_empty(name: &str) -> bool {
    !name.is_empty()
}
/// Rule of [`is_not_empty`], for error messages.
pub(super) const NAME_NOT_EMPTY_RULE: &str = "must not be empty";
