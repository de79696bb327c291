//! The lifecycle that docs/jobs.md shows is the one that the code has.

use ensue_core::jobs::lifecycle::diagram;

const PAGE: &str = include_str!("../../../docs/jobs.md");

#[test]
fn the_page_shows_the_lifecycle_as_it_is() {
    let shown = PAGE.split("```mermaid\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(shown, Some(diagram().as_str()), "put this into docs/jobs.md:\n{}", diagram());
}
