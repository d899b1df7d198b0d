//! Pages in a browser without a screen: they load without complaint, need nothing from elsewhere, draw their charts, are no wider
//! than a telephone, are used by keys alone, and can be read in light and dark.

use std::path::{Path, PathBuf};
use std::process::Command;

use needs::Need;

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// What the browser makes of a page with this script at its end, `width` pixels wide.
fn dom(page: &Path, width: u32, theme: &str, script: &str) -> String {
    let text = std::fs::read_to_string(page).unwrap();
    assert!(!text.contains("<script"), "a page needs no script");
    let probe = page.with_extension(format!("{theme}.html"));
    let scheme = u8::from(theme == "light");
    let script = format!("<script>{script}</script></body>");
    std::fs::write(&probe, text.replacen("</body>", &script, 1)).unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"])
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg(format!("--user-data-dir={}", folder().join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
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
    const lost = [...document.querySelectorAll('nav a')].filter(e => !document.getElementById(e.hash.slice(1))).map(e => e.hash);\
    const clipped = [...document.querySelectorAll('figure svg text:not([transform])')].filter(e => { const t = e.getBoundingClientRect(), \
        s = e.closest('svg').getBoundingClientRect(); return t.right > s.right + 1 || t.left < s.left - 1; }).map(e => e.textContent);\
    const all = [...document.querySelectorAll('a[href], summary, .scroll')].filter(e => e.checkVisibility());\
    const unreached = all.filter(e => { e.focus(); return document.activeElement !== e; }).map(e => e.outerHTML.slice(0, 80));\
    const folded = [...document.querySelectorAll('figure')].filter(e => !e.querySelector('details table tbody tr')).length;\
    const light = c => { const [r, g, b] = c.match(/[0-9.]+/g).map(v => { v /= 255; \
        return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };\
    const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; \
        if (!c.endsWith(', 0)')) return c; } return 'rgb(255, 255, 255)'; };\
    const contrast = e => { const a = light(getComputedStyle(e).color), b = light(ground(e)); \
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); };\
    const faint = [...document.querySelectorAll('p, a, td, th, h1, h2, h3, li, summary, .badge')]\
        .filter(e => e.checkVisibility() && contrast(e) < 4.5).map(e => e.outerHTML.slice(0, 80));\
    const ground_is = light(getComputedStyle(document.body).backgroundColor) < 0.2 ? 'dark' : 'light';\
    document.body.setAttribute('data-probe', JSON.stringify({wide, drawn, elsewhere, lost, clipped, unreached, folded, faint, ground_is, \
        height: document.body.scrollHeight, \
        titles: document.querySelectorAll('svg circle title').length}));";

fn probe(page: &Path, theme: &str) -> serde_json::Value {
    let dom = dom(page, 500, theme, MEASURE);
    let (_, rest) = dom.split_once("data-probe=\"").expect("the script ran");
    let text = rest.split('"').next().unwrap().replace("&quot;", "\"");
    serde_json::from_str(&text).unwrap()
}

fn made(arguments: &[&str], page: &Path) {
    let mut nearfar = Command::new(env!("CARGO_BIN_EXE_nearfar"));
    nearfar.current_dir(folder()).arg("--no-cache").args(arguments);
    if page.extension().is_some() {
        nearfar.arg("--report").arg(page);
    }
    let made = nearfar.output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// A page of a sweep over numbers, one over words, and one of a comparison.
fn pages_are_drawn_at_any_width_and_need_nothing_else() {
    const DIRECTORY: &str = "nfp6000-simulated_hsw-Xeon-E5-2620v3_dell-t630";
    let folder = folder();
    made(
        &["bench", "--machine", "dell-t630", "--files", "lat_dma_sizes", "-o", DIRECTORY],
        &folder.join(DIRECTORY),
    );
    let pages: [(&str, &[&str]); 3] = [
        ("numbers", &["sweep", "iommu-window", "--over", "host.iommu.walkers=1..6"]),
        ("words", &["sweep", "card-bandwidth", "--over", "machine=dell-t430,dell-t630"]),
        ("compare", &["compare", DIRECTORY, "--set", "host.llc.ddio_ways=0"]),
    ];
    for (name, arguments) in pages {
        let page = folder.join(format!("{name}.html"));
        made(arguments, &page);
        for theme in ["light", "dark"] {
            let seen = probe(&page, theme);
            let nothing = serde_json::json!([]);
            for what in ["wide", "elsewhere", "lost", "clipped", "unreached", "faint"] {
                assert_eq!(seen[what], nothing, "{name}, {theme}, {what}: {seen}");
            }
            assert_eq!((&seen["ground_is"], &seen["folded"]), (&theme.into(), &0.into()), "{name}: {seen}");
            assert!(seen["drawn"].as_u64() > Some(0) && seen["titles"].as_u64() >= Some(2), "{name}: {seen}");
            // As many lines as somebody scrolls through.
            assert!(seen["height"].as_u64() < Some(20_000), "{name}: {seen}");
        }
    }
}

needs::tests!(
    Need::LargeProgram("chromium");
    pages_are_drawn_at_any_width_and_need_nothing_else,
);
