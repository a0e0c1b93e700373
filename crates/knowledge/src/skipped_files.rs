//! Files of a folder that are not searched.

use std::fmt;

use crate::FolderLimits;

/// Number of files that are not searched, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SkippedFiles {
    pub(super) too_large: u64,
    pub(super) not_text: u64,
    pub(super) links: u64,
    pub(super) unreadable: u64,
    /// Beyond the maximum number or total size of files.
    pub(super) over_limit: u64,
    /// The folder has more names, or deeper folders, than are listed.
    pub(super) is_truncated: bool,
}

impl SkippedFiles {
    /// Returns true if the operator should know: images and links in a folder are normal.
    pub(super) fn should_warn(&self) -> bool {
        self.too_large + self.unreadable + self.over_limit > 0 || self.is_truncated
    }

    /// Description of the skipped files, if there are any.
    pub(super) fn summary(&self, limits: &FolderLimits) -> Option<String> {
        (*self != Self::default()).then(|| SkippedSummary(self, limits).to_string())
    }
}

struct SkippedSummary<'a>(&'a SkippedFiles, &'a FolderLimits);

impl fmt::Display for SkippedSummary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(skipped, limits) = self;
        let mut reasons = Vec::new();
        let mut add = |count: u64, reason: String| match count {
            0 => {}
            1 => reasons.push(format!("1 file {reason}")),
            count => reasons.push(format!("{count} files {reason}")),
        };
        add(skipped.too_large, format!("larger than {} bytes", limits.max_file_bytes));
        add(
            skipped.over_limit,
            format!("beyond {} files or {} bytes in all", limits.max_files, limits.max_total_bytes),
        );
        add(skipped.not_text, "that cannot be read as text".to_owned());
        add(skipped.unreadable, "that could not be read".to_owned());
        match skipped.links {
            0 => {}
            1 => reasons.push("1 link".to_owned()),
            count => reasons.push(format!("{count} links")),
        }
        if skipped.is_truncated {
            reasons.push(format!(
                "everything after the first {} names or {} folders deep",
                limits.max_names, limits.max_depth
            ));
        }
        write!(f, "{}", reasons.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::SkippedFiles;
    use crate::FolderLimits;

    #[test]
    fn g11_skipped_files_are_described_by_reason() {
        let limits = FolderLimits { max_file_bytes: 10, ..FolderLimits::default() };
        assert_eq!(SkippedFiles::default().summary(&limits), None);
        let skipped = SkippedFiles { too_large: 1, links: 2, is_truncated: true, ..SkippedFiles::default() };
        let words = "1 file larger than 10 bytes, 2 links, everything after the first 100000 names or 64 folders deep";
        assert_eq!(skipped.summary(&limits).as_deref(), Some(words));
    }
}
