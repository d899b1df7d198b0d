//! Measured directories as files for gnuplot, against those that pcie-bench itself made of one of them.

use needs::{Need, data, measured};
use results::pciebench::{read_directory, to_dat};

/// Word by word: columns may be apart by more or fewer spaces, and what is rounded may fall to either side.
fn files_for_gnuplot_are_those_of_pcie_bench() {
    let directory = measured().into_iter().find(|path| path.ends_with(SOURCE)).expect("the directory");
    let directory = read_directory(&directory).unwrap();
    let mut compared = 0;
    for (name, text) in to_dat(&directory.files) {
        let Ok(wanted) = std::fs::read_to_string(data().join("measured/pcie-bench-dat").join(&name)) else {
            continue;
        };
        let lines = |text: &str| text.trim_end().lines().map(str::to_owned).collect::<Vec<_>>();
        let (ours, theirs) = (lines(&text), lines(&wanted));
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (n, (our, their)) in ours.iter().zip(&theirs).enumerate() {
            let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let (our_words, their_words) = (words(our), words(their));
            let same = |(our, their): (&String, &String)| match (our.parse::<f64>(), their.parse::<f64>()) {
                // One unit of the last digit that is shown.
                (Ok(our), Ok(their)) => {
                    (our - their).abs() <= 1.0 && (our - their).abs() <= 0.01 * their.abs()
                }
                _ => our == their,
            };
            let all = our_words.len() == their_words.len() && our_words.iter().zip(&their_words).all(same);
            assert!(all, "{name}, line {}:\n{our}\n{their}", n + 1);
        }
        compared += 1;
    }
    assert!(compared > 20, "{compared} files");
}

/// The directory that the files for gnuplot were made from.
const SOURCE: &str = "nfp6000-1.2GHz_bdw-Xeon-E5-2630v4-dell-t430-s0-s0-s0";

needs::tests!(
    Need::Data;
    files_for_gnuplot_are_those_of_pcie_bench,
);
