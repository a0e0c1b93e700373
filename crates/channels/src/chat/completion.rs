//! Completion of commands, skills and paths.

/// Words available for completion.
#[derive(Debug, Clone, Default)]
pub struct CompletionWords {
    /// Commands without their comma.
    pub commands: Vec<String>,
    /// Skills without their dollar sign.
    pub skills: Vec<String>,
}

/// Possible completions of the last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionChoices {
    /// Number of bytes before the cursor to replace.
    pub replaced_bytes: usize,
    /// Replacements.
    pub choices: Vec<String>,
}

/// Maximum number of choices.
const MAX_COMPLETION_CHOICES: usize = 50;

impl CompletionWords {
    /// Completes the text before the cursor. `names` lists the entries of a folder, folders with a trailing slash.
    pub fn complete(&self, before: &str, names: impl Fn(&str) -> Vec<String>) -> Option<CompletionChoices> {
        let word_at = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = &before[word_at..];
        if let Some(command) = word.strip_prefix(',').filter(|_| before[..word_at].trim().is_empty()) {
            return to_choices(word.len(), names_with_prefix(&self.commands, command).map(|name| format!(",{name} ")));
        }
        if let Some(skill) = word.strip_prefix('$') {
            return to_choices(word.len(), names_with_prefix(&self.skills, skill).map(|name| format!("${name} ")));
        }
        // The value of a command argument, as in `path=src/`, is a path too.
        let path = word.rsplit_once('=').map_or(word, |(_, path)| path);
        if path.is_empty() {
            return None;
        }
        let (folder, name) = path.rfind('/').map_or(("", path), |at| path.split_at(at + 1));
        let mut names = names(folder);
        // Hidden files are offered only for a name that starts with a dot.
        names.retain(|entry| entry.starts_with('.') == name.starts_with('.') || name.starts_with('.'));
        names.sort();
        to_choices(path.len(), names_with_prefix(&names, name).map(|entry| format!("{folder}{entry}")))
    }
}

fn names_with_prefix<'a>(names: &'a [String], prefix: &'a str) -> impl Iterator<Item = &'a String> {
    names.iter().filter(move |name| name.starts_with(prefix))
}

fn to_choices(replaced_bytes: usize, choices: impl Iterator<Item = String>) -> Option<CompletionChoices> {
    let choices: Vec<String> = choices.take(MAX_COMPLETION_CHOICES).collect();
    if choices.is_empty() { None } else { Some(CompletionChoices { replaced_bytes, choices }) }
}

impl CompletionChoices {
    /// Longest common prefix of the choices.
    pub fn common_prefix(&self) -> String {
        let Some((first, others)) = self.choices.split_first() else { return String::new() };
        let shared_len = |other: &String| {
            let difference = first.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
            difference.map_or(first.len().min(other.len()), |((at, _), _)| at)
        };
        let length = others.iter().map(shared_len).min().unwrap_or(first.len());
        first[..length].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::{CompletionChoices, CompletionWords};

    fn complete_sample(before: &str) -> Option<CompletionChoices> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let words =
            CompletionWords { commands: names(&["help", "tape.info", "tape.search"]), skills: names(&["review"]) };
        words.complete(before, |folder| match folder {
            "" => names(&["README.md", "src/", ".git/"]),
            "src/" => names(&["lib.rs", "main.rs"]),
            _ => Vec::new(),
        })
    }

    fn sample_choices(before: &str) -> Vec<String> {
        complete_sample(before).map(|completion| completion.choices).unwrap_or_default()
    }

    #[test]
    fn c01_commands_skills_and_paths_are_completed() {
        assert_eq!(sample_choices(",he"), [",help "]);
        assert_eq!(sample_choices(",tape"), [",tape.info ", ",tape.search "]);
        assert_eq!(sample_choices("use $re"), ["$review "]);
        assert_eq!(sample_choices(",fs.read REA"), ["README.md"]);
        assert_eq!(sample_choices(",fs.read path=src/m"), ["src/main.rs"]);
        assert_eq!(sample_choices("see .g"), [".git/"]);
        assert_eq!(sample_choices("x ,he"), [""; 0], "a command must come first");
        assert_eq!(complete_sample("hello "), None);
        assert_eq!(complete_sample("hello"), None);
    }

    #[test]
    fn c01_common_prefix_of_several_choices_is_inserted() {
        let completion = complete_sample(",ta").unwrap();
        assert_eq!((completion.replaced_bytes, completion.common_prefix().as_str()), (3, ",tape."));
    }
}
