//! Completing what is being written: commands, skills, paths.

/// What there is to complete with.
#[derive(Debug, Clone, Default)]
pub struct CompletionWords {
    /// The commands, without their comma.
    pub commands: Vec<String>,
    /// The skills, without their sign.
    pub skills: Vec<String>,
}

/// What could stand in place of the last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionChoices {
    /// How many bytes before the cursor it replaces.
    pub replaced_bytes: usize,
    /// What could stand there.
    pub choices: Vec<String>,
}

/// How many choices are offered at most.
const MAX_COMPLETION_CHOICES: usize = 50;

impl CompletionWords {
    /// What the text before the cursor could become. `names` lists a folder: names, those of folders with a slash.
    pub fn complete(&self, before: &str, names: impl Fn(&str) -> Vec<String>) -> Option<CompletionChoices> {
        let word_at = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = &before[word_at..];
        if let Some(command) = word.strip_prefix(',').filter(|_| before[..word_at].trim().is_empty()) {
            return to_choices(word.len(), names_with_prefix(&self.commands, command).map(|name| format!(",{name} ")));
        }
        if let Some(skill) = word.strip_prefix('$') {
            return to_choices(word.len(), names_with_prefix(&self.skills, skill).map(|name| format!("${name} ")));
        }
        // A value of a command, as in `path=src/`, is a path too.
        let path = word.rsplit_once('=').map_or(word, |(_, path)| path);
        if path.is_empty() {
            return None;
        }
        let (folder, name) = path.rfind('/').map_or(("", path), |at| path.split_at(at + 1));
        let mut names = names(folder);
        // Nobody wants to see hidden files who did not ask for them.
        names.retain(|entry| entry.starts_with('.') == name.starts_with('.') || name.starts_with('.'));
        names.sort();
        to_choices(path.len(), names_with_prefix(&names, name).map(|entry| format!("{folder}{entry}")))
    }
}

fn names_with_prefix<'a>(names: &'a [String], start: &'a str) -> impl Iterator<Item = &'a String> {
    names.iter().filter(move |name| name.starts_with(start))
}

fn to_choices(replaces: usize, choices: impl Iterator<Item = String>) -> Option<CompletionChoices> {
    let choices: Vec<String> = choices.take(MAX_COMPLETION_CHOICES).collect();
    if choices.is_empty() { None } else { Some(CompletionChoices { replaced_bytes: replaces, choices }) }
}

impl CompletionChoices {
    /// What all choices begin with.
    pub fn common_prefix(&self) -> String {
        let Some((first, others)) = self.choices.split_first() else { return String::new() };
        let shared = |other: &String| {
            let same = first.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
            same.map_or(first.len().min(other.len()), |((at, _), _)| at)
        };
        let length = others.iter().map(shared).min().unwrap_or(first.len());
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
        assert_eq!(sample_choices("x ,he"), [""; 0], "a command stands at the beginning");
        assert_eq!(complete_sample("hello "), None);
        assert_eq!(complete_sample("hello"), None);
    }

    #[test]
    fn c01_what_all_choices_share_is_written_at_once() {
        let completion = complete_sample(",ta").unwrap();
        assert_eq!((completion.replaced_bytes, completion.common_prefix().as_str()), (3, ",tape."));
    }
}
