//! Tries whole pages.

use super::*;

fn text(html: &str) -> String {
    read(html, "https://example.org/a/b").text
}

#[test]
fn a_page_becomes_text_that_can_be_read() {
    let html = r#"<!doctype html><html lang="en-GB"><head>
        <title>On  tea &amp;
        biscuits</title><meta name="description" content="What goes with it.">
        <meta property="og:site_name" content="The Kitchen"><meta name="author" content="A. Cook">
        <meta property="article:published_time" content="2024-05-01">
        <link rel="canonical" href="/tea"><style>p { color: red }</style><script>document.write("<p>no</p>")</script>
        </head><body><nav><ul><li><a href="/">Home</a></ul></nav>
        <h1>Tea</h1><p>Tea is a <em>drink</em>.<br>It is&nbsp;hot; see <a href="../c?x=1&amp;y=2">the  list</a>.</p>
        <ul><li>green<li>black<ol><li><p>strong</p></li><li>weak</li></ol></ul>
        <pre>  1 cup
  2 spoons</pre><blockquote><p>No milk.</p></blockquote>
        <table><tr><th>kind<th>minutes<tr><td>green<td>2</table><img src=x alt="A cup">
        <footer>imprint</footer></body></html>"#;
    let page = read(html, "https://example.org/a/b");
    assert_eq!(
        page,
        Page {
            title: Some("On tea & biscuits".to_owned()),
            text: "# Tea\n\nTea is a drink.\nIt is hot; see the list.\n\n- green\n- black\n  1. strong\n  2. weak\n\n      1 cup\n      2 spoons\n\n> No milk.\n\nkind | minutes\n\ngreen | 2\n\n[A cup]".to_owned(),
            headings: vec![Heading { level: 1, text: "Tea".to_owned() }],
            links: vec![Link { text: "the list".to_owned(), url: "https://example.org/c?x=1&y=2".to_owned() }],
            metadata: Metadata {
                description: Some("What goes with it.".to_owned()),
                author: Some("A. Cook".to_owned()),
                published: Some("2024-05-01".to_owned()),
                site: Some("The Kitchen".to_owned()),
                language: Some("en-GB".to_owned()),
                canonical: Some("https://example.org/tea".to_owned()),
            },
            truncated: false,
        }
    );
}

#[test]
fn the_main_part_is_the_page_if_it_says_enough() {
    let much = "words ".repeat(40);
    let html = format!("<p>menu <a href=/x>x</a></p><main><h2>Yes</h2><p>{much}<a href=/y>y</a></p></main><p>cookies");
    let page = read(&html, "https://example.org/");
    assert_eq!(page.text, format!("## Yes\n\n{much}y"));
    assert_eq!(page.links, [Link { text: "y".to_owned(), url: "https://example.org/y".to_owned() }]);
    assert_eq!(text("<p>before</p><main><p>little</p></main>"), "before\n\nlittle");
}

#[test]
fn what_is_not_content_leaves_no_text() {
    for html in [
        "<script>a</script>",
        "<script>if (a < b) { '</scr' + '<p>' }</script>",
        "<style>p::before { content: 'x' }</style>",
        "<nav>a<nav>b</nav>c</nav>",
        "<noscript>turn it on</noscript>",
        "<template><p>x</p></template>",
        "<svg><text>x</text></svg>",
        "<textarea>x</textarea><select><option>y</select>",
        "<!-- x --><![CDATA[ y ]]>",
        "<script>never closed",
        "<script/>still a script</script>",
        "<nav/>still navigation",
    ] {
        assert_eq!(text(html), "", "{html}");
    }
}

#[test]
fn navigation_that_is_never_closed_ends_where_the_page_begins() {
    assert_eq!(text("<nav><a href=/>x</a><main><p>page</p></main>"), "page");
}

#[test]
fn links_follow_the_base_of_the_page_and_are_told_once() {
    let html = r##"<base href="https://other.example/x/"><a href="y">one</a><a href=y>two</a><a href="#top">up</a>
        <a href="javascript:x">js</a><a href=z>three"##;
    let links = [
        Link { text: "one".to_owned(), url: "https://other.example/x/y".to_owned() },
        Link { text: "three".to_owned(), url: "https://other.example/x/z".to_owned() },
    ];
    assert_eq!(read(html, "https://example.org/").links, links);
}

#[test]
fn nesting_without_end_costs_no_more_than_its_length() {
    for tag in ["div", "ul><li", "b", "a href=/x", "nav", "main", "table><tr><td", "blockquote", "h1", "pre", "svg"] {
        let html = format!("{}x", format!("<{tag}>").repeat(50_000));
        assert!(read(&html, "https://example.org/").text.len() < 1000, "{tag}");
    }
}

#[test]
fn too_much_of_anything_is_left_off() {
    let links: String = (0..kept::MOST_LINKS + 1).map(|n| format!("<a href=/{n}>{n}</a>")).collect();
    let page = read(&links, "https://example.org/");
    assert_eq!((page.links.len(), page.truncated), (kept::MOST_LINKS, true));
    let page = read(&"<p>ä".repeat(200_000), "https://example.org/");
    assert!(page.truncated && page.text.len() <= MOST_TEXT);
    let page = read(&"x".repeat(3 * MOST_TEXT), "https://example.org/");
    assert!(page.truncated && page.text.len() <= MOST_TEXT);
    let page = read(&format!("<title>{}", "t".repeat(10_000)), "https://example.org/");
    assert_eq!(page.title.unwrap().len(), SHORT + "…".len());
}

#[test]
fn bytes_that_mean_nothing_do_no_harm() {
    for html in [
        "<",
        "</",
        "<a",
        "<a b='",
        "&#xFFFFFFFF;&#0;&bogus;&",
        "<!",
        "<!DOCTYPE",
        "\0<\0p\0>",
        "<p/><p / =>",
        "</p></div></ul>",
    ] {
        let _ = read(html, "https://example.org/");
    }
    assert_eq!(text("<svg/>x"), "x");
    assert_eq!(text("&lt;b&gt; &copy; &#x1F600;"), "<b> © 😀");
}
