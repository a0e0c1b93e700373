//! Completing what is being written: commands, skills, paths.

/// What there is to complete with.
#[derive(Debug, Clone, Default)]
pub struct Words {
    /// The commands, without their comma.
    pub commands: Vec<String>,
    /// The skills, without their sign.
    pub skills: Vec<String>,
}

/// What could stand in place of the last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// How many bytes before the cursor it replaces.
    pub replaces: usize,
    /// What could stand there.
    pub choices: Vec<String>,
}

/// How many choices are offered at most.
const CHOICES: usize = 50;

impl Words {
    /// What the text before the cursor could become. `names` lists a folder: names, those of folders with a slash.
    pub fn complete(&self, before: &str, names: impl Fn(&str) -> Vec<String>) -> Option<Completion> {
        let word_at = before.rfind(char::is_whitespace).map_or(0, |at| at + 1);
        let word = &before[word_at..];
        if let Some(command) = word.strip_prefix(',').filter(|_| before[..word_at].trim().is_empty()) {
            return offer(word.len(), begin_with(&self.commands, command).map(|name| format!(",{name} ")));
        }
        if let Some(skill) = word.strip_prefix('$') {
            return offer(word.len(), begin_with(&self.skills, skill).map(|name| format!("${name} ")));
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
        offer(path.len(), begin_with(&names, name).map(|entry| format!("{folder}{entry}")))
    }
}

fn begin_with<'a>(names: &'a [String], start: &'a str) -> impl Iterator<Item = &'a String> {
    names.iter().filter(move |name| name.starts_with(start))
}

fn offer(replaces: usize, choices: impl Iterator<Item = String>) -> Option<Completion> {
    let choices: Vec<String> = choices.take(CHOICES).collect();
    if choices.is_empty() { None } else { Some(Completion { replaces, choices }) }
}

impl Completion {
    /// What all choices begin with.
    pub fn common(&self) -> String {
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
    use super::{Completion, Words};

    fn complete(before: &str) -> Option<Completion> {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let words = Words { commands: names(&["help", "tape.info", "tape.search"]), skills: names(&["review"]) };
        words.complete(before, |folder| match folder {
            "" => names(&["README.md", "src/", ".git/"]),
            "src/" => names(&["lib.rs", "main.rs"]),
            _ => Vec::new(),
        })
    }

    fn choices(before: &str) -> Vec<String> {
        complete(before).map(|completion| completion.choices).unwrap_or_default()
    }

    #[test]
    fn c01_commands_skills_and_paths_are_completed() {
        assert_eq!(choices(",he"), [",help "]);
        assert_eq!(choices(",tape"), [",tape.info ", ",tape.search "]);
        assert_eq!(choices("use $re"), ["$review "]);
        assert_eq!(choices(",fs.read REA"), ["README.md"]);
        assert_eq!(choices(",fs.read path=src/m"), ["src/main.rs"]);
        assert_eq!(choices("see .g"), [".git/"]);
        assert_eq!(choices("x ,he"), [""; 0], "a command stands at the beginning");
        assert_eq!(complete("hello "), None);
        assert_eq!(complete("hello"), None);
    }

    #[test]
    fn c01_what_all_choices_share_is_written_at_once() {
        let completion = complete(",ta").unwrap();
        assert_eq!((completion.replaces, completion.common().as_str()), (3, ",tape."));
    }
}
