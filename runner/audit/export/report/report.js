"use strict";
// A model, or a command that it ran, wrote most texts in the data. They become text nodes, never markup: the content
// security policy of the page forbids parsing text as markup (`require-trusted-types-for`), and this file never does.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 100, PRINTED = 1000, SVG = "http://www.w3.org/2000/svg";
  const VERDICTS = ["denied", "asked", "allowed"], WORDS = ["Denied", "Asked, then allowed", "Allowed"];
  const MARKS = ["\u2715", "?", "\u2713"];
  const texts = data.texts;

  // A text is stored as its index in `texts`, or as [index, length of the whole text] if it was cut.
  const text = (one) => texts[Array.isArray(one) ? one[0] : one];
  const whole = (one) => (Array.isArray(one) ? one[1] : 0);

  const rows = data.rows.map((values, at) => {
    const row = { at };
    data.fields.forEach((name, index) => { row[name] = values[index]; });
    row.hosts = row.hosts || [];
    return row;
  });
  const days = new Set(rows.map((row) => Math.floor(row.time / 86400000))).size;
  const byId = new Map(rows.map((row) => [row.id, row]));

  // Invisible and reversing characters are spelled out, as on the terminal (`runner/text/sanitize.py`).
  const ODD = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Zs}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\u180b-\u180f\u{e0100}-\u{e01ef}]/u;
  const PLAIN = /^[\x20-\x7e]*$/;
  const NAMED = { "\0": "\\0", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  const spelled = (char) => {
    const code = char.codePointAt(0);
    return NAMED[char] || (code < 0x80 ? "\\x" + code.toString(16).padStart(2, "0") : "U+" + code.toString(16).toUpperCase().padStart(4, "0"));
  };
  const odd = (char, lines) => char !== " " && !(lines && (char === "\n" || char === "\t")) && ODD.test(char);

  function make(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key === "class") made.className = value;
      else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return made;
  }

  function draw(name, attributes, ...children) {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  // Returns nodes that show a text, with its invisible and reversing characters spelled out.
  function safe(said, lines = false) {
    if (PLAIN.test(said)) return [said];
    const found = [];
    let run = "";
    for (const char of said) {
      if (!odd(char, lines)) { run += char; continue; }
      if (run) found.push(run);
      run = "";
      found.push(make("span", { class: "odd" }, spelled(char)));
    }
    if (run) found.push(run);
    return found;
  }
  const clear = (said) => PLAIN.test(said) ? said : [...said].map((char) => (odd(char, false) ? spelled(char) : char)).join("");
  const shown = (one, lines = false) => {
    const nodes = safe(text(one), lines);
    const length = whole(one);
    return length ? [...nodes, make("span", { class: "cut" }, `\u2026 cut: ${count(length)} characters in all`)] : nodes;
  };
  // Returns `said` with each pair of backticks as code, where all of them are in pairs.
  function coded(said) {
    const pieces = said.split("`");
    return pieces.length % 2 ? pieces.map((piece, at) => (at % 2 ? make("code", {}, safe(piece)) : safe(piece))).flat() : safe(said);
  }
  const prose = (one) => (whole(one) ? shown(one) : coded(text(one)));
  const mono = (one, name = "") => make("bdi", { class: `mono ${name}`, dir: "ltr" }, shown(one));

  const count = (number) => Number(number || 0).toLocaleString("en-US");
  const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
  const two = (number) => String(number).padStart(2, "0");
  const day = (ms) => { const d = new Date(ms); return `${d.getUTCFullYear()}-${two(d.getUTCMonth() + 1)}-${two(d.getUTCDate())}`; };
  const hour = (ms) => { const d = new Date(ms); return `${two(d.getUTCHours())}:${two(d.getUTCMinutes())}`; };
  const clock = (ms) => `${hour(ms)}:${two(new Date(ms).getUTCSeconds())}`;
  const stamp = (ms) => `${day(ms)} ${clock(ms)}`;
  const bytes = (size) => {
    if (size < 1024) return `${size} B`;
    for (const unit of ["KiB", "MiB", "GiB"]) { size /= 1024; if (size < 1024 || unit === "GiB") return `${size.toFixed(size < 10 ? 1 : 0)} ${unit}`; }
  };
  const $ = (id) => document.getElementById(id);

  // Filters: one predicate for each field. A plot shows the rows that match the filters of all other fields.

  const state = { text: "", verdict: new Set(), tier: "", rule: "", tool: "", agent: "", host: "", session: "", from: 0, until: 0, order: "denials", page: 0, id: 0 };
  // The agents above a sub-agent, and its own name: "main > general-1 > explore-1". A parent of a row is known by its rows.
  const above = new Map(rows.filter((row) => row.agent).map((row) => [`${row.session} ${text(row.agent)}`, text(row.parent)]));
  function agents(row) {
    const names = [row.agent ? text(row.agent) : "main"];
    for (let next = above.get(`${row.session} ${names[0]}`); next && !names.includes(next); next = above.get(`${row.session} ${names[0]}`)) names.unshift(next);
    return names.join(" > ");
  }
  const DIMENSIONS = ["verdict", "tier", "host", "time", "rest"];
  let matching = [], charted = {};

  function hay(row) {
    if (row.hay === undefined) {
      const said = [row.action, row.why, row.rule, row.tool, row.agent, ...row.hosts];
      for (const effect of row.effects || []) said.push(effect[1]);
      for (const item of (row.outcome && row.outcome.violations) || []) said.push(item[0]);
      const session = data.sessions[row.session];
      row.hay = said.map(text).join("\n").toLowerCase() + `\n${session.name}\n${text(session.workspace || 0).toLowerCase()}`;
    }
    return row.hay;
  }

  function filter() {
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = {
      verdict: (row) => !state.verdict.size || state.verdict.has(row.verdict),
      tier: (row) => !state.tier || text(row.tier) === state.tier,
      host: (row) => !state.host || row.hosts.some((host) => text(host) === state.host),
      time: (row) => (!state.from || row.time >= state.from) && (!state.until || row.time < state.until),
      rest: (row) =>
        (!state.rule || text(row.rule) === state.rule) && (!state.tool || text(row.tool) === state.tool) && (!state.agent || agents(row) === state.agent) &&
        (!state.session || data.sessions[row.session].name === state.session) &&
        words.every((word) => (/^#\d+$/.test(word) ? row.id === Number(word.slice(1)) : hay(row).includes(word))),
    };
    matching = [];
    charted = Object.fromEntries(DIMENSIONS.map((name) => [name, []]));
    for (const row of rows) {
      const failed = DIMENSIONS.filter((name) => !wanted[name](row));
      if (!failed.length) { matching.push(row); for (const name of DIMENSIONS) charted[name].push(row); }
      else if (failed.length === 1) charted[failed[0]].push(row);
    }
    if (state.order === "oldest") matching.sort((a, b) => a.time - b.time || a.id - b.id);
    else if (state.order === "denials") matching.sort((a, b) => a.verdict - b.verdict || a.at - b.at);
  }

  const tally = (found) => found.reduce((sums, row) => { sums[row.verdict] += 1; return sums; }, [0, 0, 0]);

  // The head of the page

  function head() {
    const times = rows.map((row) => row.time).filter(Boolean).sort((a, b) => a - b);
    const told = [
      ["Made", data.made.replace("T", " ").slice(0, 16) + " UTC"],
      ["Log", data.log],
      ["Covers", times.length ? `${stamp(times[0])} \u2013 ${stamp(times[times.length - 1])}` : "nothing"],
    ];
    if (data.chosen) told.push(["Chosen by", data.chosen]);
    $("meta").append(...told.map(([name, said]) => make("div", {}, make("dt", {}, name), make("dd", {}, make("bdi", { dir: "ltr" }, safe(said))))));
    const alerts = $("alerts");
    if (data.broken) alerts.append(make("p", { class: "alert", role: "alert" }, make("strong", {}, "The verification of the log failed. "), ...safe(data.broken), " What follows may have been changed: keep the file as evidence."));
    if (data.left) alerts.append(make("p", { class: "alert mild" }, `Only the newest ${plural(rows.length, "decision")} are in this file; older ones were left out. `, make("code", {}, "agent audit export --limit N"), " takes more."));
    const sums = tally(rows), all = rows.length;
    const share = (number) => (all ? `${((100 * number) / all).toFixed(number && number / all < 0.1 ? 1 : 0)} %` : "");
    const stopped = rows.reduce((sum, row) => sum + ((row.outcome && row.outcome.stopped) || 0), 0);
    const hosts = new Set(rows.flatMap((row) => row.hosts.map(text)));
    const refused = new Set(rows.filter((row) => row.verdict === 0).flatMap((row) => row.hosts.map(text)));
    for (const row of rows) for (const made of (row.outcome && row.outcome.connections) || []) if (!made[2]) refused.add(text(made[0]));
    const tiles = [
      ["", all, "decisions", plural(data.sessions.length, "session")],
      ["denied", sums[0], "denied", share(sums[0])],
      ["asked", sums[1], "asked, then allowed", share(sums[1])],
      ["allowed", sums[2], "allowed by policy", share(sums[2])],
      [stopped ? "stopped" : "", stopped, "stopped by sandbox", "while they ran"],
      ["", hosts.size, "hosts", refused.size ? `${count(refused.size)} refused at least once` : "none refused"],
    ];
    $("tiles").append(...tiles.map(([kind, number, name, more]) => make("div", { class: `tile ${kind}`, "data-tile": name }, make("strong", {}, count(number)), make("span", {}, name), make("small", {}, more))));
    if (data.sealed) $("tiles").append(make("div", { class: "tile seal" }, make("strong", {}, data.sealed.includes(",") ? "\u2713 chains hold" : "\u2713 chain holds"), make("span", {}, "all records checked"), make("small", {}, make("bdi", { class: "mono", dir: "ltr", title: data.sealed }, data.sealed))));
    $("made").replaceChildren(...safe(`Made by ${data.program}. One file, no network: it holds the data, and loads nothing. Texts longer than ${count(data.longest)} characters are cut; agent audit show ID has all of them.`));
  }

  // Plots

  function bucket(found) {
    const times = found.map((row) => row.time).filter(Boolean);
    if (!times.length) return null;
    let first = Infinity, last = -Infinity;
    for (const time of times) { if (time < first) first = time; if (time > last) last = time; }
    const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000, 31536000].map((each) => each * 1000);
    const step = steps.find((each) => (last - first) / each <= 72) || steps[steps.length - 1];
    const begin = Math.floor(first / step) * step;
    const bars = Array.from({ length: Math.floor((last - begin) / step) + 1 }, (_, index) => ({ time: begin + index * step, sums: [0, 0, 0] }));
    for (const row of found) if (row.time) bars[Math.floor((row.time - begin) / step)].sums[row.verdict] += 1;
    return { bars, step, begin, end: begin + bars.length * step };
  }

  const nice = (number) => { const power = 10 ** Math.floor(Math.log10(Math.max(number, 1))); return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map((each) => each * power).find((each) => each >= number && Number.isInteger(each)); };
  const spanned = (step) => (step < 60000 ? `${step / 1000} s` : step < 3600000 ? `${step / 60000} min` : step < 86400000 ? `${step / 3600000} h` : plural(step / 86400000, "day"));

  function timePlot() {
    const found = charted.time, plot = bucket(found), box = $("plot-time");
    $("key").replaceChildren(...VERDICTS.map((name, index) => make("span", { class: name }, make("i", {}), WORDS[index].toLowerCase())), plot ? make("span", { class: "step" }, `a bar is ${spanned(plot.step)}`) : "");
    if (!plot) { box.replaceChildren(make("p", { class: "none" }, "Nothing matches.")); $("time-table").replaceChildren(); return; }
    const width = Math.max(box.clientWidth, 280), high = 196, left = 54, right = 8, top = 8, floor = 146, rug = 158;
    const inner = width - left - right, slot = inner / plot.bars.length;
    const most = nice(Math.max(...plot.bars.map((bar) => bar.sums[0] + bar.sums[1] + bar.sums[2])));
    const y = (number) => floor - ((floor - top) * number) / most;
    const x = (time) => left + (inner * (time - plot.begin)) / (plot.end - plot.begin);
    const sums = tally(found);
    const svg = draw("svg", { viewBox: `0 0 ${width} ${high}`, width, height: high, role: "img", "aria-label": `Verdicts over time from ${stamp(plot.begin)} to ${stamp(plot.end)} UTC: ${sums[0]} denied, ${sums[1]} asked and then allowed, ${sums[2]} allowed. The table below has each bar.` });
    for (const line of [...new Set([0, most / 2, most])].filter(Number.isInteger)) {
      svg.append(draw("line", { class: "grid", x1: left, x2: width - right, y1: y(line), y2: y(line) }), draw("text", { class: "axis", x: left - 8, y: y(line) + 4, "text-anchor": "end" }, count(line)));
    }
    const bars = draw("g", { class: "bars" });
    for (const bar of plot.bars) {
      const total = bar.sums[0] + bar.sums[1] + bar.sums[2];
      if (!total) continue;
      const group = draw("g", { "data-time": new Date(bar.time).toISOString(), "data-denied": bar.sums[0], "data-asked": bar.sums[1], "data-allowed": bar.sums[2] });
      group.append(draw("title", {}, `${stamp(bar.time)}, ${spanned(plot.step)}: ${bar.sums.map((sum, index) => `${count(sum)} ${VERDICTS[index]}`).join(", ")}`));
      let base = floor;
      const thick = Math.max(Math.min(slot - Math.min(slot * 0.24, 3), 56), 1);
      bar.sums.forEach((sum, index) => {
        if (!sum) return;
        const tall = Math.max(floor - y(sum), 1.5);
        base -= tall;
        group.append(draw("rect", { class: VERDICTS[index], x: x(bar.time) + (slot - thick) / 2, y: base, width: thick, height: tall }));
      });
      bars.append(group);
    }
    svg.append(bars);
    // Each denial has its own stroke below the bars, so that one denial among ten thousand decisions is visible.
    svg.append(draw("text", { class: "axis", x: left - 8, y: rug + 6, "text-anchor": "end" }, "denials"));
    const strokes = new Set(found.filter((row) => row.verdict === 0 && row.time).map((row) => Math.round(x(row.time) * 2) / 2));
    svg.append(draw("path", { class: "rug", d: [...strokes].map((at) => `M${at} ${rug - 4}v10`).join("") }));
    // Labels with times are below the beginnings of bars, as many as there is room for.
    const long = plot.end - plot.begin > 2 * 86400000, every = Math.ceil(plot.bars.length / Math.max(2, Math.floor(inner / 96)));
    for (let index = 0, before = -Infinity; index <= plot.bars.length; index += every) {
      const time = plot.begin + index * plot.step, place = x(time), last = place > width - 46;
      if (last && place - before < 112) break; // it would touch the label before it
      before = place;
      const said = long ? day(time).slice(5) + (plot.step < 86400000 ? " " + hour(time) : "") : plot.step < 60000 ? clock(time) : hour(time);
      svg.append(draw("line", { class: "grid", x1: place, x2: place, y1: floor, y2: floor + 4 }));
      svg.append(draw("text", { class: "axis", x: place, y: high - 10, "text-anchor": last ? "end" : "middle" }, said));
    }
    if (state.from || state.until) {
      const a = Math.max(left, state.from ? x(state.from) : left), b = Math.min(width - right, state.until ? x(state.until) : width - right);
      svg.append(draw("rect", { class: "chosen", x: Math.min(a, b), y: top - 4, width: Math.max(Math.abs(b - a), 1), height: rug + 8 - top }));
    }
    brush(svg, plot, left, inner, top, rug, width);
    box.replaceChildren(svg);
    const listed = plot.bars.filter((bar) => bar.sums.some(Boolean));
    $("time-table").replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ["From (UTC)", ...VERDICTS].map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, listed.map((bar) => make("tr", {}, make("th", { scope: "row" }, stamp(bar.time)), bar.sums.map((sum) => make("td", {}, count(sum))))))));
  }

  // A click selects the time of one bar, a drag the time of several bars.
  function brush(svg, plot, left, inner, top, rug, width) {
    let start = null, band = null;
    const scale = () => width / svg.getBoundingClientRect().width;
    const at = (event) => Math.min(Math.max((event.clientX - svg.getBoundingClientRect().left) * scale(), left), left + inner - 0.01);
    const slot = (place) => Math.floor(((place - left) / inner) * plot.bars.length);
    svg.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      start = at(event);
      svg.setPointerCapture(event.pointerId);
      band = draw("rect", { class: "band", x: start, y: top - 4, width: 0, height: rug + 8 - top });
      svg.append(band);
      event.preventDefault();
    });
    svg.addEventListener("pointermove", (event) => {
      if (start === null) return;
      const now = at(event);
      band.setAttribute("x", Math.min(start, now));
      band.setAttribute("width", Math.abs(now - start));
    });
    svg.addEventListener("pointercancel", () => { start = null; if (band) band.remove(); });
    svg.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const [a, b] = [start, at(event)].sort((one, other) => one - other).map(slot);
      start = null;
      const from = plot.bars[a].time, until = plot.bars[b].time + plot.step;
      const again = state.from === from && state.until === until;
      choose({ from: again ? 0 : from, until: again ? 0 : until });
    });
  }

  function barPlot(box, entries, field, most) {
    const top = Math.max(1, ...entries.map(([, sums]) => sums[0] + sums[1] + sums[2]));
    const list = make("ol", { class: "bars" });
    if (entries.length === most + 1) most += 1; // a line about one other takes as much room as that one
    for (const [name, sums] of entries.slice(0, most)) {
      const total = sums[0] + sums[1] + sums[2];
      const svg = draw("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { class: "track", x: 0, y: 0, width: 100, height: 8 }));
      let x = 0;
      sums.forEach((sum, index) => {
        if (!sum) return;
        const wide = Math.max((98 * sum) / top, 0.8);
        svg.append(draw("rect", { class: VERDICTS[index], x, y: 0, width: wide, height: 8 }));
        x += wide;
      });
      const said = sums.map((sum, index) => (sum ? `${count(sum)} ${VERDICTS[index]}` : "")).filter(Boolean).join(", ");
      list.append(make("li", {}, make("button", {
        type: "button", class: "bar", "aria-pressed": String(state[field] === name), title: said,
        "data-name": name, "data-denied": sums[0], "data-asked": sums[1], "data-allowed": sums[2],
        onclick: () => choose({ [field]: state[field] === name ? "" : name }),
      }, make("bdi", { class: "name", dir: "ltr" }, safe(name)), svg, make("span", { class: "sum" }, count(total)), make("span", { class: "away" }, said))));
    }
    const more = entries.length - most;
    box.replaceChildren(entries.length ? list : make("p", { class: "none" }, "None."), more > 0 ? make("p", { class: "none" }, `and ${plural(more, "other")}; the filter below has all of them`) : "");
  }

  function grouped(found, names) {
    const sums = new Map();
    for (const row of found) for (const name of new Set(names(row))) {
      if (!sums.has(name)) sums.set(name, [0, 0, 0]);
      sums.get(name)[row.verdict] += 1;
    }
    return [...sums].sort(([, a], [, b]) => b[0] - a[0] || b[1] + b[2] - a[1] - a[2]);
  }

  function plots() {
    timePlot();
    barPlot($("plot-tiers"), grouped(charted.tier, (row) => [text(row.tier)]), "tier", 8);
    barPlot($("plot-hosts"), grouped(charted.host, (row) => row.hosts.map(text)), "host", 8);
  }

  // The list

  const badge = (verdict) => make("span", { class: `badge ${VERDICTS[verdict]}` }, make("i", { "aria-hidden": "true" }, MARKS[verdict]), VERDICTS[verdict]);
  const SERIOUS = new Set(["secret", "denied", "dangerous", "unknown"]), NOTABLE = new Set(["network", "write-outside", "read-outside", "mcp-external"]);
  const chip = (one) => { const name = text(one); return make("span", { class: `chip ${SERIOUS.has(name) ? "serious" : NOTABLE.has(name) ? "notable" : ""}` }, safe(name)); };

  function marks(row) {
    const found = [], outcome = row.outcome;
    if (outcome) {
      if (outcome.stopped) found.push(make("span", { class: "mark bad" }, `${count(outcome.stopped)} stopped`));
      if (outcome.ended) found.push(make("span", { class: "mark bad" }, `ended by ${clear(text(outcome.ended))}`));
      else if (outcome.status) found.push(make("span", { class: "mark" }, `exit ${outcome.status}`));
    }
    for (const host of row.hosts.slice(0, 2)) found.push(make("span", { class: "mark" }, make("bdi", { dir: "ltr" }, safe(text(host)))));
    if (row.hosts.length > 2) found.push(make("span", { class: "mark" }, `+${row.hosts.length - 2} hosts`));
    return found;
  }

  const brief = (said) => { const line = said.trim(); return line.length > 240 ? line.slice(0, 240) + "\u2026" : line; };

  function line(row) {
    return make("li", {}, make("button", { type: "button", class: `row ${VERDICTS[row.verdict]}`, id: `r${row.id}`, "data-id": row.id, "aria-current": state.id === row.id ? "true" : null, onclick: () => open(row.id, true) },
      make("span", { class: "what" }, badge(row.verdict), chip(row.tier), make("bdi", { class: "mono act", dir: "ltr" }, safe(brief(text(row.action))))),
      make("span", { class: "who" }, make("time", { datetime: new Date(row.time).toISOString() }, state.order === "denials" && days > 1 ? stamp(row.time).slice(5) : clock(row.time)), make("span", { class: "tool" }, safe(brief(text(row.tool)))), ...(row.agent ? [make("span", { class: "mark" }, make("bdi", { dir: "ltr" }, safe(agents(row))))] : []), make("span", { class: "why" }, make("bdi", { dir: "ltr" }, coded(brief(text(row.why))))), ...marks(row), make("span", { class: "number" }, `#${row.id}`)),
    ));
  }

  function heading(row, sums) {
    if (state.order === "denials") return `${WORDS[row.verdict]} \u00b7 ${count(sums[row.verdict])}`;
    return day(row.time);
  }

  function list(size = PAGE) {
    const pages = Math.max(1, Math.ceil(matching.length / size));
    state.page = Math.min(Math.max(state.page, 0), pages - 1);
    const from = state.page * size, part = matching.slice(from, from + size), sums = tally(matching);
    $("found").replaceChildren(make("strong", {}, count(matching.length)), matching.length === rows.length ? ` ${rows.length === 1 ? "decision" : "decisions"}` : ` of ${plural(rows.length, "decision")}`, sums[0] && matching.length !== sums[0] ? `, ${count(sums[0])} denied` : "");
    const shownRows = [];
    let before = "";
    for (const row of part) {
      const title = heading(row, sums);
      if (title !== before) {
        shownRows.push(make("li", { class: "group" }, make("h2", {}, title)));
        before = title;
      }
      shownRows.push(line(row));
    }
    if (!part.length) shownRows.push(make("li", { class: "none" }, rows.length ? "No decision matches these filters." : "Nothing was decided yet."));
    $("rows").replaceChildren(...shownRows);
    for (const name of ["pager", "pager-below"]) {
      $(name).replaceChildren(...(pages < 2 ? [] : [
        make("button", { type: "button", class: "plain", disabled: state.page === 0, onclick: () => turn(-1) }, "\u2039 Previous"),
        make("span", {}, `${count(from + 1)}\u2013${count(from + part.length)} of ${count(matching.length)}`),
        make("button", { type: "button", class: "plain", disabled: state.page === pages - 1, onclick: () => turn(1) }, "Next \u203a"),
      ]));
    }
  }

  function turn(by) {
    state.page += by;
    list();
    $("list").scrollIntoView({ block: "start" });
    remember();
  }

  // One decision

  // Returns the script with line numbers. `span` (code points, half-open) is marked and underlined, as on a terminal.
  function script(one, span, note) {
    const chars = [...text(one)], pre = make("pre", { class: "script", tabindex: "0", "aria-label": "What was to be done" });
    const [begin, end] = span || [-1, -1];
    let at = 0, number = 0;
    while (at <= chars.length) {
      let stop = chars.indexOf("\n", at);
      if (stop < 0) stop = chars.length;
      number += 1;
      const row = make("span", { class: "line" }, make("span", { class: "no", "aria-hidden": "true" }, String(number)));
      const a = Math.max(begin, at), b = Math.min(end, stop), part = (from, to) => safe(chars.slice(from, to).join(""), true);
      if (a < b) {
        row.append(...part(at, a), make("mark", {}, part(a, b)), ...part(b, stop), "\n");
        const wide = (from, to) => chars.slice(from, to).reduce((sum, char) => sum + (odd(char, true) ? spelled(char).length : char === "\t" ? 4 : 1), 0);
        pre.append(row);
        if (end <= stop || b === chars.length) {
          const from = wide(at, a), carets = Math.max(1, Math.min(wide(a, b), 400)), beside = from + carets <= 40;
          pre.append(make("span", { class: "line caret", "aria-hidden": "true" }, make("span", { class: "under" }, " ".repeat(from), "^".repeat(carets)), note && beside ? ` ${clear(note)}` : "", "\n"));
          if (note && !beside) pre.append(make("span", { class: "line caret", "aria-hidden": "true" }, clear(note), "\n"));
        }
      } else {
        row.append(...part(at, stop), "\n");
        pre.append(row);
      }
      at = stop + 1;
      if (number >= 2000) { pre.append(make("span", { class: "cut" }, "\u2026 more lines")); break; }
    }
    if (whole(one)) pre.append(make("span", { class: "cut" }, `\u2026 cut: ${count(whole(one))} characters in all`));
    if (begin >= chars.length && begin > 0) pre.append(make("span", { class: "cut" }, " The words that it points at are in the part that is not shown."));
    return pre;
  }

  const part = (title, ...children) => make("section", {}, make("h3", {}, title), ...children);
  const pairs = (found) => make("dl", { class: "pairs" }, found.filter(([, said]) => said !== null && said !== undefined && said !== "" && !(Array.isArray(said) && !said.length)).map(([name, said]) => make("div", {}, make("dt", {}, name), make("dd", {}, said))));
  const items = (found, name = "") => make("ul", { class: `items ${name}` }, found.map((each) => make("li", {}, each)));

  function detail(row) {
    const box = $("detail");
    if (!row) {
      box.replaceChildren(make("div", { class: "empty" }, make("p", {}, rows.length ? "Choose a decision to see all of it: the script and the words that decided, the rule, the effects, the rights it ran with, and what became of it." : "There is nothing to show.")));
      return;
    }
    const session = data.sessions[row.session], terms = row.terms > -1 && row.verdict ? data.terms[row.terms] : null, outcome = row.outcome, command = text(row.kind) === "RunScript";
    const holder = make("div", { class: "holder" }), note = `${text(row.tier)}: ${text(row.why)}`;
    holder.append(script(row.action, command ? row.span : null, note));
    const reasons = (row.reasons || []).map(([tier, why, rule, span]) => {
      const told = [chip(tier), " ", make("bdi", { dir: "ltr" }, prose(why)), " ", mono(rule, "soft")];
      if (!span || !command) return make("div", { class: "reason" }, told);
      return make("button", { type: "button", class: "reason", title: "Show the words that it is about", onclick: () => holder.replaceChildren(script(row.action, span, `${text(tier)}: ${text(why)}`)) }, told);
    });
    const [lessReasons, lessEffects] = row.more || [0, 0];
    const found = [
      make("header", {}, make("p", { class: "what" }, badge(row.verdict), chip(row.tier), make("span", { class: "number" }, `#${row.id}`), make("button", { type: "button", class: "plain close", onclick: back }, "Back to the list")), make("h2", {}, make("bdi", { dir: "ltr" }, prose(row.why))), make("p", { class: "soft" }, `${stamp(row.time)} UTC \u00b7 `, make("bdi", { dir: "ltr" }, shown(row.tool)), ...(row.agent ? [" \u00b7 agent ", make("bdi", { dir: "ltr" }, safe(agents(row)))] : []), ...(row.kind ? [" \u00b7 ", ...safe(text(row.kind))] : []))),
      holder,
    ];
    if (row.problem) found.push(make("div", { class: "refusal" }, make("p", {}, make("strong", {}, prose(row.problem[0]))), make("p", {}, prose(row.problem[1])), make("p", { class: "soft" }, "What to do: ", prose(row.problem[2]))));
    if (outcome && outcome.violations) found.push(part(`Stopped by the sandbox (${count(outcome.stopped)})`, items(outcome.violations.map(([what, fix, layer, guess]) => [make("bdi", { dir: "ltr" }, shown(what)), make("span", { class: "soft" }, `${guess ? ", inferred from its own message" : ` by ${clear(text(layer))}`}; `, shown(fix))]), "bad")));
    found.push(part("Decided by", pairs([
      ["Rule", row.rule ? mono(row.rule) : "none"],
      ["Matrix", row.cell ? `${text(row.tier)} \u00d7 ${text(row.cell[0])} = ${text(row.cell[1])}` : null],
      ["Answer", row.answer ? [make("strong", {}, row.answer[1] ? "yes" : "no"), ", by ", ...safe(text(row.answer[2])), make("span", { class: "soft" }, " to: ", shown(row.answer[0])), row.answer[3] ? make("span", {}, " saying: ", shown(row.answer[3])) : null] : row.cell && row.verdict === 0 && text(row.cell[1]) === "ask" ? "nobody was there to ask" : null],
      ["Grants", (row.grants || []).map((each) => [mono(each), " "]).flat()],
      ["By flags", (row.typed || []).map((each) => [mono(each), " "]).flat()],
      ["Other tiers", (row.tiers || []).filter((each) => text(each) !== text(row.tier)).map((each) => [chip(each), " "]).flat()],
    ])));
    if (reasons.length) found.push(part(`Reasons (${count(reasons.length + lessReasons)})`, items(reasons), lessReasons > 0 ? make("p", { class: "soft" }, `and ${count(lessReasons)} more`) : ""));
    if (row.effects && row.effects.length) found.push(part(`Effects (${count(row.effects.length + lessEffects)})`, make("table", { class: "effects" }, make("thead", { class: "away" }, make("tr", {}, ["kind", "target", "where"].map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, row.effects.map(([kind, target, scope, exact]) => make("tr", {}, make("td", {}, safe(text(kind))), make("td", {}, mono(target), exact ? "" : make("span", { class: "soft" }, " (at most)")), make("td", { class: "soft" }, text(scope) === "none" ? "" : safe(text(scope))))))), lessEffects > 0 ? make("p", { class: "soft" }, `and ${count(lessEffects)} more`) : ""));
    for (const [name, value] of row.parts || []) if (["content", "old", "new"].includes(name)) found.push(part(name === "content" ? "Content" : name === "old" ? "Replaces" : "By", script(value, null, "")));
    if (outcome) {
      const made = outcome.connections || [];
      found.push(part("Outcome", pairs([
        ["Exit", [make("strong", {}, String(outcome.status)), outcome.ended ? [", ended by ", ...safe(text(outcome.ended))] : null].flat()],
        ["Took", outcome.seconds !== undefined ? `${outcome.seconds < 10 ? outcome.seconds.toFixed(3) : outcome.seconds.toFixed(1)} s${outcome.cpu ? `, ${outcome.cpu} s of processor time` : ""}${outcome.memory ? `, ${bytes(outcome.memory)} of memory` : ""}` : null],
        ["Printed", outcome.stdout || outcome.stderr ? `${bytes(outcome.stdout || 0)} out, ${bytes(outcome.stderr || 0)} errors${outcome.truncated ? ", cut" : ""}` : null],
        ["Said", outcome.problem ? [...shown(outcome.problem[0]), ": ", ...shown(outcome.problem[1])] : null],
        ["Boundary", outcome.level ? `${clear(outcome.level)}: not all was enforced` : null],
      ]), made.length ? make("table", { class: "effects reached" }, make("thead", { class: "away" }, make("tr", {}, ["host", "verdict", "bytes"].map((name) => make("th", { scope: "col" }, name)))), make("tbody", {}, made.map(([host, port, allowed, why, sent, received, credential]) => make("tr", {}, make("td", {}, mono(host), port ? `:${port}` : ""), make("td", {}, make("span", { class: allowed ? "ok" : "no-entry" }, allowed ? "reached" : "refused"), why ? make("span", { class: "soft" }, " ", shown(why)) : "", credential ? make("span", { class: "soft" }, " with credential ", shown(credential)) : ""), make("td", { class: "soft" }, allowed ? `${bytes(sent || 0)} sent, ${bytes(received || 0)} received` : ""))))) : "", (outcome.connected || 0) > made.length ? make("p", { class: "soft" }, `and ${count(outcome.connected - made.length)} more connections`) : "", outcome.changed ? items(outcome.changed.map(([path, how]) => [...safe(text(how)), " ", mono(path)])) : "", (outcome.changes || 0) > (outcome.changed || []).length ? make("p", { class: "soft" }, `${count(outcome.changes)} files changed in all`) : ""));
    } else if (row.verdict) found.push(part("Outcome", make("p", { class: "soft" }, "No end was recorded: nothing had to run, it still runs, or the program died.")));
    if (terms) {
      const some = (name) => { const kept = terms[name] || [], all = terms.counts[name]; return kept.length ? [...kept.map((each) => [mono(each), " "]).flat(), all > kept.length ? `and ${count(all - kept.length)} more` : ""] : []; };
      found.push(part("Rights it ran with", pairs([
        ["Set", make("strong", {}, terms.rights === "workspace-write" ? "workspace-write: the workspace is writable" : terms.rights === "read-only" ? "read-only: nothing is writable" : clear(String(terms.rights)))],
        ["Also reads", some("read")], ["Also writes", some("write")], ["Hosts", terms.hosts.length ? some("hosts") : "none: no network"], ["Credentials", some("credentials")], ["Opened", some("shown")],
        ["Hidden", `${plural(terms.counts.hidden, "pattern")}; ${count(terms.counts.locked)} locked; ${plural(terms.counts.env, "variable")}`],
        ["Limits", terms.limits ? Object.entries(terms.limits).map(([name, value]) => `${name} ${["memory", "file", "output", "disk"].includes(name) ? bytes(value) : value}`).join(", ") : null],
        ["Backend", safe(text(row.backend))], ["Hash", make("span", { class: "mono soft" }, clear(terms.digest.slice(0, 16)))],
      ])));
    }
    const where = (row.parts || []).find(([name]) => name === "cwd");
    found.push(part("Session", pairs([
      ["Name", make("button", { type: "button", class: "link mono", title: "Only this session", onclick: () => choose({ session: session.name }) }, safe(session.name || "?"))],
      ["Workspace", session.workspace ? mono(session.workspace) : null], ["Folder", where && text(where[1]) !== text(session.workspace || 0) ? mono(where[1]) : null],
      ["Model", session.model ? mono(session.model) : "none: typed by a person or a script"],
      ["Mode", `${clear(text(session.mode || 0) || "?")}${session.unattended ? ", unattended" : ""}`], ["Commit", session.commit ? mono(session.commit) : null],
      ["Command", session.argv && session.argv.length ? make("bdi", { class: "mono", dir: "ltr" }, session.argv.map((word) => [...shown(word), " "]).flat()) : null],
      ["Boundary", session.level ? [make("strong", {}, clear(session.level)), ...(session.missing || []).map((each) => ["; ", ...shown(each)]).flat()] : null],
      ["Policy", session.policy ? make("span", { class: "mono soft" }, clear(text(session.policy).slice(0, 16))) : null],
      ["Ended", session.end ? [`exit ${session.end.exit}`, session.end.turns ? `, ${plural(session.end.turns, "turn")}` : "", typeof session.end.cost === "number" ? `, cost ${session.end.cost}` : "", session.reason ? [": ", ...shown(session.reason)] : ""].flat() : null],
      ["By", [...safe(text(session.program || 0)), session.user !== undefined ? `, user ${session.user}` : ""]],
    ]), around(row)));
    found.push(make("p", { class: "soft foot" }, "In the log: ", make("code", {}, `agent audit show ${row.id}`), " \u00b7 hash ", make("span", { class: "mono" }, clear(String(row.hash)), "\u2026")));
    box.replaceChildren(...found);
    box.scrollTop = 0;
  }

  // Returns a list of the decisions of the session just before and after `row`.
  function around(row) {
    const same = rows.filter((each) => each.session === row.session).sort((a, b) => a.id - b.id), at = same.indexOf(row);
    if (same.length < 2) return "";
    return make("div", {}, make("h4", {}, `Before and after, of ${count(same.length)} in this session`), make("ol", { class: "around" }, same.slice(Math.max(0, at - 3), at + 4).map((each) => make("li", {}, make("button", { type: "button", class: `mini ${VERDICTS[each.verdict]}`, "aria-current": each === row ? "true" : null, onclick: () => open(each.id, false) }, make("i", { "aria-hidden": "true" }, MARKS[each.verdict]), make("span", { class: "away" }, VERDICTS[each.verdict]), make("time", {}, clock(each.time)), make("bdi", { class: "mono", dir: "ltr" }, safe(brief(text(each.action)))))))));
  }

  const narrow = () => window.matchMedia("(max-width: 1080px)").matches;

  function open(id, focus) {
    const row = byId.get(id);
    state.id = row ? id : 0;
    for (const each of document.querySelectorAll(".row[aria-current]")) each.removeAttribute("aria-current");
    const shownRow = $(`r${id}`);
    if (shownRow) shownRow.setAttribute("aria-current", "true");
    document.body.classList.toggle("reading", Boolean(row));
    detail(row);
    if (focus && narrow()) { $("detail").focus({ preventScroll: true }); $("detail").scrollIntoView(); }
    remember();
  }

  function back() {
    document.body.classList.remove("reading");
    const row = $(`r${state.id}`);
    if (row) row.focus(); else $("list").focus();
  }

  // Returns the UTC time of `2026-03-04`, or of `2026-03-04 05:06` with or without seconds; 0 for other text.
  function moment(said) {
    const found = /^\s*(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}(?::\d{2})?))?Z?\s*$/.exec(said);
    return (found && Date.parse(`${found[1]}T${found[2] || "00:00"}Z`)) || 0;
  }

  // The fields of the filters, and the address (`#verdict=0&tier=secret`), by which a view can be shared.

  function options() {
    const fill = (id, found, name = (each) => clear(each)) => {
      $(id).replaceChildren(make("option", { value: "" }, "any"), ...found.map(([value, number]) => make("option", { value }, `${name(value)} (${count(number)})`)));
    };
    const counts = (names) => {
      const sums = new Map();
      for (const row of rows) for (const name of new Set(names(row))) sums.set(name, (sums.get(name) || 0) + 1);
      return [...sums].filter(([name]) => name).sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    };
    fill("f-tier", counts((row) => [text(row.tier)]));
    fill("f-rule", counts((row) => [text(row.rule)]));
    fill("f-tool", counts((row) => [text(row.tool)]));
    fill("f-agent", counts((row) => [agents(row)]).sort((a, b) => (a[0] < b[0] ? -1 : 1)));
    fill("f-host", counts((row) => row.hosts.map(text)));
    const told = new Map(data.sessions.map((each) => [each.name, `${(each.time || "").slice(0, 16).replace("T", " ")} ${clear(text(each.workspace || 0)).split("/").pop()} ${clear(each.name).slice(0, 8)}`]));
    fill("f-session", counts((row) => [data.sessions[row.session].name]).sort((a, b) => (told.get(a[0]) < told.get(b[0]) ? 1 : -1)), (each) => told.get(each));
    $("f-verdict").replaceChildren(...VERDICTS.map((name, index) => make("button", { type: "button", class: `toggle ${name}`, "data-verdict": name, onclick: () => {
      const next = new Set(state.verdict);
      if (!next.delete(index)) next.add(index);
      choose({ verdict: next });
    } }, name)));
  }

  function fields() {
    for (const name of ["tier", "rule", "tool", "agent", "host", "session", "order"]) $(`f-${name}`).value = state[name];
    if ($("f-text").value !== state.text) $("f-text").value = state.text;
    for (const name of ["from", "until"]) $(`f-${name}`).value = state[name] ? stamp(state[name]) : "";
    for (const each of $("f-verdict").children) each.setAttribute("aria-pressed", String(state.verdict.has(VERDICTS.indexOf(each.dataset.verdict))));
    for (const name of ["tier", "rule", "tool", "agent", "host", "session", "from", "until"]) $(`f-${name}`).parentElement.classList.toggle("on", Boolean(state[name]));
    $("clear").disabled = !(state.text || state.verdict.size || state.tier || state.rule || state.tool || state.agent || state.host || state.session || state.from || state.until);
  }

  function remember() {
    const said = new URLSearchParams();
    for (const name of ["text", "tier", "rule", "tool", "agent", "host", "session", "from", "until", "id", "page"]) if (state[name]) said.set(name, state[name]);
    if (state.verdict.size) said.set("verdict", [...state.verdict].join(""));
    if (state.order !== "denials") said.set("order", state.order);
    const now = said.toString();
    if (location.hash.slice(1) !== now) try { history.replaceState(null, "", now ? `#${now}` : location.pathname + location.search); } catch { /* some viewers have no history, which the page does not need */ }
  }

  function recall() {
    const said = new URLSearchParams(location.hash.slice(1));
    for (const name of ["text", "tier", "rule", "tool", "agent", "host", "session"]) state[name] = said.get(name) || "";
    for (const name of ["from", "until", "id", "page"]) state[name] = Math.max(0, Math.min(Number.parseInt(said.get(name) || "0", 10) || 0, 8.64e15));
    state.verdict = new Set([...(said.get("verdict") || "")].map(Number).filter((each) => each >= 0 && each < 3));
    state.order = ["denials", "newest", "oldest"].includes(said.get("order")) ? said.get("order") : "denials";
  }

  function choose(changes) {
    Object.assign(state, changes, { page: 0 });
    show();
    remember();
  }

  function show() {
    filter();
    fields();
    list();
    plots(); // after the list, which decides whether there is a scroll bar
  }

  function move(by) {
    const shownRows = [...document.querySelectorAll(".row")];
    if (!shownRows.length) return;
    const at = shownRows.findIndex((each) => Number(each.dataset.id) === state.id);
    const next = shownRows[Math.min(Math.max(at < 0 ? 0 : at + by, 0), shownRows.length - 1)];
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
    open(Number(next.dataset.id), false);
  }

  function listen() {
    let waiting = 0;
    $("f-text").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => choose({ text: $("f-text").value }), 120); });
    for (const name of ["tier", "rule", "tool", "agent", "host", "session", "order"]) $(`f-${name}`).addEventListener("change", () => choose({ [name]: $(`f-${name}`).value }));
    for (const name of ["from", "until"]) $(`f-${name}`).addEventListener("change", () => { choose({ [name]: moment($(`f-${name}`).value) }); });
    $("filters").addEventListener("submit", (event) => event.preventDefault());
    $("clear").addEventListener("click", () => choose({ text: "", verdict: new Set(), tier: "", rule: "", tool: "", agent: "", host: "", session: "", from: 0, until: 0 }));
    $("theme").addEventListener("click", () => {
      const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
      document.documentElement.dataset.theme = dark ? "light" : "dark";
    });
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName);
      if (event.key === "Escape") { if (typing) document.activeElement.blur(); else back(); return; }
      if (typing) return;
      if (event.key === "/") { $("f-text").focus(); event.preventDefault(); }
      else if (event.key === "j" || (event.key === "ArrowDown" && !$("detail").contains(document.activeElement))) { move(1); event.preventDefault(); }
      else if (event.key === "k" || (event.key === "ArrowUp" && !$("detail").contains(document.activeElement))) { move(-1); event.preventDefault(); }
      else if (event.key === "Enter" && document.activeElement.classList.contains("row")) { open(Number(document.activeElement.dataset.id), false); $("detail").focus({ preventScroll: !narrow() }); event.preventDefault(); }
    });
    let resizing = 0;
    window.addEventListener("resize", () => { clearTimeout(resizing); resizing = setTimeout(timePlot, 80); });
    window.addEventListener("hashchange", () => { recall(); show(); detail(byId.get(state.id)); });
    window.addEventListener("beforeprint", () => { state.printed = state.page; state.page = 0; list(PRINTED); });
    window.addEventListener("afterprint", () => { state.page = state.printed || 0; list(); });
  }

  head();
  options();
  recall();
  const page = state.page;
  filter();
  if (!state.id && matching.length && !narrow()) state.id = matching[0].id;
  state.page = page;
  fields();
  list();
  detail(byId.get(state.id));
  plots();
  listen();
})();
