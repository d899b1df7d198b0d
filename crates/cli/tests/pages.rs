//! Pages in a browser without a screen: they load without complaint, need nothing from elsewhere, draw their charts, and are
//! no wider than a telephone.

use std::path::{Path, PathBuf};
use std::process::Command;

use needs::Need;

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What the browser makes of a page with this script at its end, `width` pixels wide.
fn dom(page: &Path, width: u32, script: &str) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    assert!(!text.contains("<script"), "a page needs no script");
    let probe = page.with_extension(format!("{width}.html"));
    let script = format!("<script>{script}</script></body>");
    std::fs::write(&probe, text.replacen("</body>", &script, 1)).unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(format!("--user-data-dir={}", folder().join("profile").display()))
        .arg(format!("--window-size={width},900"))
        .arg(&probe)
        .output()
        .expect("chromium is installed");
    let complaints = String::from_utf8_lossy(&output.stderr);
    let told = complaints.lines().filter(|line| line.contains("CONSOLE")).collect::<Vec<_>>();
    assert!(told.is_empty(), "{told:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Measures the page in an element of the width of a telephone: windows without a screen are no narrower than 500 pixels.
const MEASURE: &str = "\
    document.documentElement.style.width = '420px'; document.body.style.width = '420px';\
    const wide = [...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll') && !e.closest('svg') \
        && e.getBoundingClientRect().right > 421).map(e => e.tagName + '.' + e.className);\
    const drawn = [...document.querySelectorAll('figure svg')].filter(e => e.getBoundingClientRect().height > 50).length;\
    const elsewhere = performance.getEntriesByType('resource').map(e => e.name);\
    document.body.setAttribute('data-probe', JSON.stringify({wide, drawn, elsewhere, \
        titles: document.querySelectorAll('svg circle title').length}));";

fn probe(page: &Path) -> serde_json::Value {
    let dom = dom(page, 500, MEASURE);
    let (_, rest) = dom.split_once("data-probe=\"").expect("the script ran");
    let text = rest.split('"').next().unwrap().replace("&quot;", "\"");
    serde_json::from_str(&text).unwrap()
}

fn pages_are_drawn_at_any_width_and_need_nothing_else() {
    let folder = folder();
    let sweep = folder.join("sweep.html");
    let arguments = ["sweep", "iommu-window", "--over", "host.iommu.walkers=1..6", "--no-cache", "--report"];
    let made = Command::new(env!("CARGO_BIN_EXE_nearfar")).args(arguments).arg(&sweep).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let seen = probe(&sweep);
    assert_eq!(
        (&seen["wide"], &seen["elsewhere"]),
        (&serde_json::json!([]), &serde_json::json!([])),
        "{seen}"
    );
    assert!(seen["drawn"].as_u64() > Some(0) && seen["titles"].as_u64() >= Some(6), "{seen}");
}

needs::tests!(
    Need::LargeProgram("chromium");
    pages_are_drawn_at_any_width_and_need_nothing_else,
);
