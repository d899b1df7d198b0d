//! Any bytes as a source about a real machine: a survey or an error that names it, never a panic.

use survey::Survey;

/// Tests an input.
pub fn run(data: &[u8]) {
    match Survey::from_bytes("source", data) {
        Ok(survey) => {
            let shown = (survey.overview(), survey.dump(), survey.to_json());
            assert!(!shown.1.is_empty());
            for finding in survey.findings() {
                assert!(!finding.title.is_empty() && !finding.cure.is_empty());
                assert!(finding.cost.share.is_none_or(|share| (0.0..=1.0).contains(&share)));
            }
        }
        Err(error) => assert!(error.to_string().starts_with("source: ")),
    }
}
