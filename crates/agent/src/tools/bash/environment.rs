//! Environment of commands: the variables they need to work, without secrets.

use std::ffi::OsString;

/// Variables that are passed on.
const PASSED_VARIABLES: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "TZ",
    "TMPDIR",
    // Installation directories.
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "GOROOT",
    "JAVA_HOME",
    "NVM_DIR",
    "PNPM_HOME",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "NIX_PATH",
    "NIX_PROFILES",
    "LD_LIBRARY_PATH",
    "PKG_CONFIG_PATH",
    // Certificate stores.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NIX_SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
];

/// Suffixes of variable names that hold secrets.
const SECRET_NAME_SUFFIXES: &[&str] =
    &["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS", "AUTH", "COOKIE"];

/// Filters an environment for a command; `added` are variable names the user allows in addition.
pub(super) fn filter_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    added: &[String],
) -> Vec<(OsString, OsString)> {
    let is_allowed = |name: &str| {
        PASSED_VARIABLES.contains(&name) || name.starts_with("LC_") || added.iter().any(|more| more == name)
    };
    let is_passed = |name: &str| is_allowed(name) && !is_secret_name(name);
    variables.into_iter().filter(|(name, _)| name.to_str().is_some_and(is_passed)).collect()
}

/// Returns true for Capstan's own settings and for credentials, which no command gets, even if the user lists them.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.starts_with("CAPSTAN_") || SECRET_NAME_SUFFIXES.iter().any(|end| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::filter_variables;

    #[test]
    fn x06_credentials_and_host_settings_do_not_reach_a_command() {
        let variables = [
            "PATH",
            "HOME",
            "LC_ALL",
            "CAPSTAN_API_KEY",
            "CAPSTAN_MODEL",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            "GITHUB_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "SSH_AUTH_SOCK",
            "MY_TOOL",
            "BASH_ENV",
            "LC_SECRET",
        ];
        let passed = |added: &[&str]| {
            let added: Vec<String> = added.iter().map(|name| (*name).to_owned()).collect();
            let passed = filter_variables(variables.map(|name| (name.into(), "x".into())), &added);
            passed.into_iter().map(|(name, _)| name.into_string().unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(passed(&[]), ["PATH", "HOME", "LC_ALL"]);
        assert_eq!(passed(&["MY_TOOL"]), ["PATH", "HOME", "LC_ALL", "MY_TOOL"], "variables added by the user");
        assert_eq!(
            passed(&["CAPSTAN_API_KEY", "OPENAI_API_KEY"]),
            ["PATH", "HOME", "LC_ALL"],
            "secrets cannot be added"
        );
    }
}
