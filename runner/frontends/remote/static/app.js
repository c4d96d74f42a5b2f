"use strict";
/* The page of remote access. Every text is put into the page by textContent: nothing that a model wrote is markup. */

const ROWS = 800;            // rows of a transcript that stay in the page
const OUTPUT = 20000;        // characters of the live output of one command
const GUARD = 700;           // milliseconds in which a new question takes no answer
const SILENCE = 40000;       // milliseconds without a message after which the connection counts as lost
const TIERS = { read: "good", write: "", execute: "warn", "agent-spawn": "warn", "read-outside": "warn", network: "warn", "write-outside": "warn", "mcp-external": "warn" };

const $ = (id) => document.getElementById(id);

function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) if (child !== null && child !== undefined && child !== false) node.append(child);
  return node;
}

const state = {
  scope: "view", socket: null, wait: 1000, heard: 0, view: "", watched: null, sessions: [], rows: null, signedIn: false,
  replaying: false, toast: 0,
};
const scopes = ["view", "answer", "prompt"];
const may = (scope) => scopes.indexOf(state.scope) >= scopes.indexOf(scope);
const text = (value) => (value === null || value === undefined ? "" : String(value));
const problem = (it) => [it && it.what, it && it.why, it && it.fix].filter(Boolean).join(" — ");

function time(value) {
  const moment = new Date(typeof value === "number" ? value * 1000 : value);
  if (Number.isNaN(moment.getTime())) return "";
  const today = moment.toDateString() === new Date().toDateString();
  return today ? moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" }) : moment.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

function say(words) {
  $("toast").textContent = words;
  $("toast").hidden = false;
  clearTimeout(state.toast);
  state.toast = setTimeout(() => { $("toast").hidden = true; }, 6000);
}

function announce(words) { $("alert").textContent = words; }

/* ---- signing in */

const OWN = { "X-Ringfence": "1" };

async function request(path, headers) {
  return fetch(path, { headers: headers || {}, cache: "no-store", credentials: "same-origin", redirect: "error" });
}

async function signIn(secret) {
  const error = $("sign-in-error");
  error.textContent = "";
  let answer;
  try {
    answer = await request("/sign-in", { ...OWN, Authorization: `Bearer ${secret}` });
  } catch {
    error.textContent = "The server does not answer.";
    return;
  }
  if (answer.status === 204) return begin();
  const said = await answer.json().catch(() => ({}));
  error.textContent = said.wait ? `Too many wrong tokens. Try again in ${said.wait} seconds.` : `Not signed in: ${text(said.why) || answer.status}.`;
  return begin();  // an earlier sign-in may still hold
}

async function begin() {
  let answer;
  try {
    answer = await request("/me");
  } catch {
    return later();
  }
  if (answer.status !== 200) {
    state.signedIn = false;
    return show("sign-in");
  }
  const me = await answer.json();
  state.signedIn = true;
  state.scope = me.scope;
  $("who").textContent = `${me.token} · ${me.scope}`;
  if (state.view === "" || state.view === "sign-in") show("sessions");
  connect();
}

async function signOut() {
  try {
    await request("/sign-out", OWN);
  } catch {
    say("The server does not answer, so this browser is still signed in.");
    return;
  }
  state.signedIn = false;
  if (state.socket) state.socket.close();
  state.watched = null;
  show("sign-in");
}

/* ---- the connection */

function connect() {
  if (state.socket) return;
  const socket = new WebSocket(`${location.protocol === "http:" ? "ws" : "wss"}://${location.host}/socket`);
  state.socket = socket;
  state.heard = Date.now();
  link("connecting", false);
  socket.addEventListener("open", () => {
    state.wait = 1000;
    link("connected", true);
    if (state.watched) ask({ type: "watch", session: state.watched });
    if (state.view === "record") askRecord();
  });
  socket.addEventListener("message", (message) => {
    state.heard = Date.now();
    take(JSON.parse(message.data));
  });
  socket.addEventListener("close", (end) => {
    if (state.socket !== socket) return;
    state.socket = null;
    if (end.code === 4401) {
      state.signedIn = false;
      state.watched = null;
      $("sign-in-error").textContent = "The token was removed or has expired.";
      return show("sign-in");
    }
    if (state.signedIn) later();
  });
}

function later() {
  link("reconnecting", false);
  setTimeout(begin, state.wait);
  state.wait = Math.min(state.wait * 2, 15000);
}

function link(words, on) {
  const node = $("link");
  node.hidden = false;
  if (node.textContent !== words) node.textContent = words;
  node.classList.toggle("on", on);
}

function ask(message) {
  if (!state.socket || state.socket.readyState !== WebSocket.OPEN) {
    say("Not connected. Try again in a moment.");
    return false;
  }
  state.socket.send(JSON.stringify(message));
  return true;
}

setInterval(() => {
  if (state.socket && Date.now() - state.heard > SILENCE) state.socket.close();
}, 5000);
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && state.signedIn && !state.socket) begin();
});

function take(message) {
  switch (message.type) {
    case "hello":
      state.scope = message.scope;
      compose();
      break;
    case "sessions":
      state.sessions = message.sessions;
      listSessions();
      break;
    case "attached":
      if (message.session !== state.watched) break;
      fresh();
      about(message.facts);
      state.replaying = true;
      if (message.answer.earlier) note(`${message.answer.earlier} earlier events are not shown`);
      break;
    case "events":
      if (message.session !== state.watched) break;
      follow(() => message.events.forEach(event));
      break;
    case "ended":
      if (message.session !== state.watched) break;
      clearQuestions();
      busy(false);
      $("composer").hidden = true;
      note("the session has ended, or this page was detached");
      break;
    case "record":
      listDecisions(message);
      break;
    case "refused":
      say(problem(message.problem));
      if (message.about === "watch") { state.watched = null; show("sessions"); }
      for (const card of $("questions").children) card.release();
      break;
  }
}

/* ---- views */

function show(view) {
  state.view = view;
  for (const name of ["sign-in", "sessions", "session", "record"]) $(`view-${name}`).hidden = name !== view;
  $("tabs").hidden = view === "sign-in" || view === "session";
  $("back").hidden = view !== "session";
  $("link").hidden = view === "sign-in";
  for (const name of ["sessions", "record"]) {
    if (view === name) $(`tab-${name}`).setAttribute("aria-current", "page");
    else $(`tab-${name}`).removeAttribute("aria-current");
  }
  const titles = { "sign-in": "ringfence", sessions: "Sessions", record: "Record" };
  if (titles[view]) $("title").textContent = titles[view];
  if (view !== "session") $("subtitle").textContent = "";
  if (view === "sign-in") $("token").value = "";
  else $("title").focus({ preventScroll: true });
  if (view === "sessions") listSessions();
  if (view === "record") askRecord();
  headline();
}

function headline() {
  const open = state.sessions.reduce((sum, each) => sum + (each.questions || []).length, 0);
  document.title = state.signedIn && open ? `(${open}) ringfence` : "ringfence";
}

const STATES = { question: ["waits for an answer", "warn"], working: ["working", "good"], idle: ["idle", ""] };

function listSessions() {
  headline();
  const known = state.sessions.find((each) => each.id === state.watched);
  if (state.view === "session" && known) about(known);
  if (state.view !== "sessions") return;
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.session : "";
  const before = [...$("sessions").children];
  const rows = state.sessions.map((each) => {
    const [words, kind] = STATES[each.state] || [text(each.state), ""];
    const count = (each.questions || []).length;
    const texts = [count > 1 ? `${count} questions` : words, time(each.active), each.title || "no prompt yet", each.folder, `mode ${text(each.mode)} · ${text(each.model)}`];
    // A row that looks as before is the same row: a press of a button that is replaced before its release is no click.
    const look = JSON.stringify([each.id, kind, ...texts]);
    const same = before.find((row) => row.look === look);
    if (same) return same;
    const row = el("li", {}, el("button", { type: "button", class: "session", "data-session": each.id, onclick: () => open(each.id) },
      el("span", { class: "row" }, el("span", { class: `badge ${kind}`, text: texts[0] }), el("span", { class: "soft", text: texts[1] })),
      el("b", { text: texts[2] }), texts.slice(3).map((each) => el("span", { class: "soft", text: each }))));
    row.look = look;
    return row;
  });
  if (rows.length !== before.length || rows.some((row, place) => row !== before[place])) $("sessions").replaceChildren(...rows);
  $("no-sessions").hidden = rows.length > 0;
  if (focused) {
    const same = [...$("sessions").querySelectorAll("button")].find((each) => each.dataset.session === focused);
    if (same) same.focus();
  }
}

function open(id) {
  state.watched = id;
  fresh();
  const known = state.sessions.find((each) => each.id === id);
  show("session");
  if (known) about(known);
  ask({ type: "watch", session: id });
}

function about(facts) {
  if (state.view !== "session") return;
  $("title").textContent = facts.title || facts.id;
  $("subtitle").textContent = `mode ${text(facts.mode)} · ${text(facts.model)} · ${text(facts.folder)}`;
  if (!state.replaying) busy(facts.state === "working" || facts.state === "question");
}

function leave() {
  if (state.watched) ask({ type: "leave" });
  state.watched = null;
  fresh();
  show("sessions");
}

/* ---- the transcript */

function fresh() {
  state.rows = { calls: new Map(), model: null, planned: false };
  $("transcript").replaceChildren();
  clearQuestions();
  compose();
  busy(false);
}

function compose() { $("composer").hidden = !may("prompt") || state.view !== "session"; }
function busy(on) { $("interrupt").hidden = !on || !may("prompt"); }

/* Keep the end in view while events arrive, unless the reader has scrolled up. */
function follow(change) {
  const box = $("scroller");
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
  change();
  const rows = $("transcript");
  while (rows.children.length > ROWS) rows.firstChild.remove();
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function toEnd() { requestAnimationFrame(() => { $("scroller").scrollTop = $("scroller").scrollHeight; }); }

function add(kind, ...children) {
  state.rows.model = null;
  const row = el("li", { class: kind }, ...children);
  $("transcript").append(row);
  return row;
}

function note(words, bad) { if (words) add(bad ? "note bad" : "note", words); }

function actionWords(action) {
  if (!action) return "a call that is not valid";
  const words = action.script || (Array.isArray(action.argv) ? action.argv.join(" ") : "") || action.path || action.url || action.query ||
    action.pattern || action.prompt || action.tool || "";
  return action.script || action.argv ? `$ ${words}` : text(words);
}

function call(id, words, tool) {
  const badge = el("span", { class: "badge", text: "…" });
  const what = words ? el("div", { class: "what", text: words }) : null;
  const row = add("call", el("div", { class: "row" }, badge, el("span", { class: "note", text: tool })), what);
  const found = { row, badge, output: null, length: 0 };
  state.rows.calls.set(id, found);
  return found;
}

function outcome(id, words, kind, details, prose) {
  const found = state.rows.calls.get(id) || call(id, "", "");
  found.badge.textContent = words;
  found.badge.className = `badge ${kind}`;
  if (details) {
    if (found.output) found.output.remove();
    const short = details.length < 400 && details.split("\n").length < 7;
    found.row.append(prose ? el("p", { class: "note words", text: details }) : el("details", { open: short }, el("summary", { text: "Result" }), el("pre", { text: details })));
  }
}

function output(id, words) {
  const found = state.rows.calls.get(id);
  if (!found) return;
  if (!found.output) {
    found.output = el("pre", { "aria-label": "Output" });
    found.row.append(found.output);
  }
  found.length += words.length;
  found.output.append(words);
  if (found.length > OUTPUT) {
    found.output.textContent = found.output.textContent.slice(-OUTPUT / 2);
    found.length = found.output.textContent.length;
  }
  found.output.scrollTop = found.output.scrollHeight;
}

function event(it) {
  const key = `${text(it.agent)} ${text(it.call)}`;
  switch (it.type) {
    case "session_started":
      break;
    case "session_resumed":
      for (const row of it.recent || []) {
        if (row.kind === "prompt") add("user words", row.text);
        else if (row.kind === "answer") add("model words", row.text);
        else note(`${row.text || row.kind}${row.outcome ? ` (${row.outcome})` : ""}`);
      }
      break;
    case "prompted":
      state.rows.calls.clear();
      add("user words", it.typed || it.text);
      busy(true);
      break;
    case "text":
      if (!state.rows.model || state.rows.model.agent !== it.agent) {
        const row = add("model words");
        if (it.agent && it.agent !== "main") row.append(el("div", { class: "note", text: `agent ${it.agent}` }));
        state.rows.model = { row, agent: it.agent };
      }
      state.rows.model.row.append(it.text);
      break;
    case "tool_proposed":
      call(key, actionWords(it.action), it.agent && it.agent !== "main" ? `${it.tool} · agent ${it.agent}` : it.tool);
      break;
    case "output":
      output(key, it.text);
      break;
    case "finished":
      outcome(key, it.ended_by ? `ended by ${it.ended_by}` : it.status === 0 ? "done" : `exit ${it.status}`, it.status === 0 ? "good" : "bad", it.text);
      for (const each of it.violations || []) note(`blocked: ${text(each.what)}`, true);
      break;
    case "denied":
      outcome(key, "denied", "bad", problem(it.problem), true);
      break;
    case "malformed_call":
      outcome(key, "not valid", "bad", problem(it.problem), true);
      break;
    case "question_asked":
      question(it);
      break;
    case "pick_wanted":
      pick(it);
      break;
    case "input_wanted":
      form(it);
      break;
    case "question_closed":
      closed(it.id);
      if (it.by) note(`answered ${text(it.answer) || "a list"} by ${it.by}`);
      break;
    case "question_answered":
      if (!it.by) note(`answered: ${it.yes ? "yes" : "no"}`);
      if (it.feedback) note(`with the reason: ${it.feedback}`);
      break;
    case "plan_proposed":
      add("model words", it.plan);
      state.rows.planned = true;
      break;
    case "changed":
      note(`${text(it.what)}: ${text(it.was)} → ${text(it.now)}${it.why ? ` (${it.why})` : ""}`);
      break;
    case "compacted":
      note(`the conversation was compacted: ${it.before} → ${it.after} tokens`);
      break;
    case "retrying":
      note(`${problem(it.problem)}; attempt ${it.attempt} of ${it.attempts} in ${it.wait} s`);
      break;
    case "queued":
      note(`queued: ${it.text}`);
      break;
    case "queue_returned":
      note("queued texts were taken back");
      break;
    case "steered":
      add("user words", it.text);
      break;
    case "process_started":
      note(`process ${it.process} started: ${it.command}`);
      break;
    case "process_ended":
      note(`process ${it.process} ended with ${it.status}`);
      break;
    case "task_changed":
      note(`task ${it.task} ${it.state}: ${it.subject} (${it.done} of ${it.total} done)`);
      break;
    case "shown":
    case "notice":
      note(it.text);
      break;
    case "error":
      note(problem(it.problem), true);
      for (const card of $("questions").children) card.release();
      break;
    case "detached":
      note(`detached: ${text(it.why)}`);
      break;
    case "run_ended":
      add("end", [it.reason, it.turns === 1 ? "1 turn" : `${it.turns} turns`, it.cost > 0 ? `cost ${it.cost.toFixed(4)}` : ""].filter(Boolean).join(" · "));
      busy(false);
      break;
    case "replayed": {
      state.replaying = false;
      const known = state.sessions.find((each) => each.id === state.watched);
      if (known) about(known);
      toEnd();
      break;
    }
  }
}

/* ---- questions */

function clearQuestions() { $("questions").replaceChildren(); }

function closed(id) {
  for (const card of [...$("questions").children]) if (card.dataset.id === id) card.remove();
  arm();
}

/* A question takes no answer for a moment after it appeared or moved, so that a tap that was meant for something else
   approves nothing. */
function arm() {
  for (const card of $("questions").children) {
    const since = card.since = performance.now();
    card.classList.remove("ready");
    setTimeout(() => { if (card.since === since) card.classList.add("ready"); }, GUARD + 20);
  }
}

function answer(card, fields) {
  if (performance.now() - card.since < GUARD) return;
  const line = { type: "answer", id: card.dataset.id, ...fields };
  if (!ask({ type: "line", session: state.watched, line })) return;
  for (const each of card.querySelectorAll("button, textarea, input, select")) each.disabled = true;
}

function frame(it, careful, heading, ...children) {
  closed(it.id);
  const card = el("section", { class: careful ? "question careful" : "question", "data-id": it.id, "aria-label": "Question" }, heading, ...children);
  card.release = () => { for (const each of card.querySelectorAll(":disabled")) each.disabled = false; };
  $("questions").append(card);
  arm();
  announce(`Question: ${heading.textContent}`);
  if ($("questions").firstChild === card) requestAnimationFrame(() => card.scrollIntoView({ block: card.offsetHeight > $("scroller").clientHeight ? "start" : "nearest" }));
  return card;
}

function marked(command, marks) {
  const letters = Array.from(command);  // positions count characters, not UTF-16 units
  const node = el("pre", { "aria-label": "Command" });
  let at = 0;
  for (const mark of [...(marks || [])].sort((one, other) => one.start - other.start)) {
    if (mark.start < at || mark.end > letters.length) continue;
    node.append(letters.slice(at, mark.start).join(""), el("mark", { text: letters.slice(mark.start, mark.end).join(""), title: mark.tier }));
    at = mark.end;
  }
  node.append(letters.slice(at).join(""));
  return node;
}

function terms(rows) {
  return el("dl", {}, Object.entries(rows || {}).map(([label, words]) => [el("dt", { text: label }), el("dd", { text: words })]));
}

function difference(change) {
  const kinds = { "+": "add", "-": "del", "@": "at" };
  const lines = change.diff.map((line) => el("span", { class: kinds[line[0]] || "", text: line || " " }));
  const head = `${change.new ? "new file " : ""}${change.path} (+${change.added} −${change.removed})`;
  return [el("p", {}, el("code", { text: head })), change.note ? el("p", { class: "note", text: change.note }) : null,
    el("pre", { class: "diff", "aria-label": "Difference" }, lines)];
}

/* A button that needs two taps if the approval is dangerous. */
function approving(label, small, primary, twice, act) {
  const name = el("span", { text: label });
  const button = el("button", { type: "button", class: primary ? "primary" : "" }, name, small ? el("small", { text: small }) : null);
  let asked = -Infinity;
  button.addEventListener("click", () => {
    const now = performance.now();
    if (twice && now - asked < GUARD) return;  // a double tap is one tap
    if (twice && now - asked > 5000) {
      if (now - button.closest(".question").since < GUARD) return;
      asked = now;
      name.textContent = "Tap again to approve";
      setTimeout(() => { name.textContent = label; }, 5000);
      return;
    }
    act();
  });
  return button;
}

function question(it) {
  const card = it.card || {};
  const tiers = (card.tiers || [card.tier]).filter(Boolean);
  const heading = el("h2", { text: card.line || it.question });
  const shown = frame(it, card.careful, heading,
    el("div", { class: "row" }, tiers.map((tier) => el("span", { class: `badge ${tier in TIERS ? TIERS[tier] : "bad"}`, text: tier })),
      it.agent && it.agent !== "main" ? el("span", { class: "note", text: `agent ${it.agent}` }) : null),
    it.again ? el("p", { class: "note", text: it.again }) : null,
    card.change ? null : marked(text(card.command), card.marks),
    (card.letters || []).map((line) => el("p", { class: "caution", text: line })),
    (card.paths || []).length > 1 ? el("ul", {}, card.paths.map((path) => el("li", { text: path }))) : null,
    card.change ? difference(card.change) : null,
    card.tried ? attempt(card.tried) : null,
    el("dl", {}, el("dt", { text: "why" }), el("dd", { text: card.special ? `${card.why} (${card.place})` : card.asks })),
    terms(card.rights),
    (card.caveats || []).map((line) => el("p", { class: "caution", text: `but: ${line}` })),
    el("details", {}, el("summary", { text: "All rights and reasons" }), terms(card.terms),
      el("ul", {}, [`${card.why} (${card.place}); ${card.asks}`, ...(card.more || [])].map((line) => el("li", { text: line })))));
  if (!may("answer")) return;
  if (card.tried) {
    decide(shown, card);
    return;
  }
  const yes = (card.choices || []).filter((each) => each.answer === "yes");
  const no = (card.choices || []).filter((each) => each.answer !== "yes");
  const reason = card.own ? null : refusal(shown, "What to do instead, or why not");
  const choice = (each, approves) => approving(`${approves ? "Yes" : "No"}: ${text(each.grant)}`,
    [each.where, each.not_covered && each.not_covered.length ? `not: ${each.not_covered.join("; ")}` : ""].filter(Boolean).join(" · "),
    false, approves && card.careful, () => answer(shown, { answer: each.keys[0] }));
  shown.append(
    el("div", { class: "answers" },
      approving("Yes, once", "", true, card.careful, () => answer(shown, { answer: "yes" })),
      el("button", { type: "button", onclick: () => answer(shown, { answer: "no" }) }, "No"),
      card.tries ? approving("Try it", "without network; its changes wait for your answer", false, false,
        () => answer(shown, { answer: "try" })) : null,
      reason ? reason.button : null,
      el("button", { type: "button", class: "danger", onclick: () => answer(shown, { answer: "stop" }) }, "Stop the turn")),
    reason ? reason.box : "",
    yes.length + no.length ? el("details", {}, el("summary", { text: "Answers that are remembered" }),
      el("div", { class: "choices" }, yes.map((each) => choice(each, true)), no.map((each) => choice(each, false)))) : "");
}

/* What a command did in a try: its output, and its changes, which wait. */
function attempt(tried) {
  const kinds = { "+": "add", "-": "del", "@": "at" };
  const lines = tried.diff.map((line) => el("span", { class: kinds[line[0]] || "", text: line || " " }));
  const commands = tried.commands || [];
  return [el("p", {}, `Tried without network: ${tried.ended}`),
    commands.length > 1 ? el("ol", {}, commands.map((line) => el("li", {}, el("code", { text: line })))) : null,
    tried.output.length ? el("pre", { class: "output", "aria-label": "Output" }, tried.output.join("\n")) : null,
    lines.length ? el("pre", { class: "diff", "aria-label": "Difference" }, lines) : null,
    tried.notes.map((line) => el("p", { class: "note", text: line }))];
}

/* The answers after a try: keep everything or the marked changes, run it as usual, or discard. */
function decide(shown, card) {
  const boxes = card.tried.items.map((words, place) => {
    const box = el("input", { type: "checkbox", id: `${shown.id || "tried"}-${place}` });
    return { box, row: el("label", {}, box, el("code", { text: words })) };
  });
  const marked = () => boxes.map((each, place) => each.box.checked ? place + 1 : 0).filter(Boolean);
  const reason = card.own ? null : refusal(shown, "What to do instead, or why not");
  shown.append(
    boxes.length > 1 ? el("div", { class: "choices" }, boxes.map((each) => each.row)) : "",
    boxes.length === 1 ? el("p", {}, el("code", { text: card.tried.items[0] })) : "",
    el("div", { class: "answers" },
      approving(boxes.length ? "Keep everything" : "Use its output", "", true, card.careful,
        () => answer(shown, { answer: "keep" })),
      boxes.length > 1 ? approving("Keep the marked ones", "", false, card.careful, () => {
        if (marked().length) answer(shown, { answer: `keep ${marked().join(",")}` });
      }) : null,
      el("button", { type: "button", onclick: () => answer(shown, { answer: "no" }) }, "Discard"),
      (card.tried.commands || []).length ? null
        : approving("Run it as usual", "with the rights above", false, card.careful, () => answer(shown, { answer: "run" })),
      reason ? reason.button : null,
      el("button", { type: "button", class: "danger", onclick: () => answer(shown, { answer: "stop" }) }, "Stop the turn")),
    reason ? reason.box : "");
}

function pick(it) {
  const plan = state.rows.planned;
  state.rows.planned = false;
  const shown = frame(it, false, el("h2", { text: plan ? "Begin with the plan, in which mode?" : it.title }));
  if (!may("answer")) return;
  const choices = (it.rows || []).map((row) => el("button", { type: "button", onclick: () => answer(shown, { answer: row.value }) },
    el("span", { text: row.label }), row.detail ? el("small", { text: row.detail }) : null));
  const reason = plan ? refusal(shown, "What to change") : null;
  shown.append(el("div", { class: "choices" }, choices,
    el("button", { type: "button", onclick: () => answer(shown, { answer: "no" }) }, plan ? "No, keep planning" : "None of them"),
    reason ? reason.button : null), ...(reason ? [reason.box] : []));
}

/* The button that opens a field for the reason of a refusal, and the field. */
function refusal(shown, hint) {
  const words = el("textarea", { rows: "2", maxlength: "2000", placeholder: hint, "aria-label": "Reason" });
  const send = () => answer(shown, words.value.trim() ? { answer: "no", feedback: words.value.trim() } : { answer: "no" });
  const box = el("div", { class: "reason", hidden: true }, words, el("button", { type: "button", onclick: send }, "Send the refusal"));
  const button = el("button", { type: "button", "aria-expanded": "false", onclick: () => {
    box.hidden = !box.hidden;
    button.setAttribute("aria-expanded", String(!box.hidden));
    if (!box.hidden) words.focus();
  } }, "No, with a reason");
  return { box, button };
}

function form(it) {
  const from = it.author === "model" ? "The model asks" : `The tool server ${it.server} asks`;
  const shown = frame(it, false, el("h2", { text: from }), el("p", { class: "words", text: it.message }));
  if (it.url) {
    shown.append(el("p", {}, "It wants you to open this page yourself: ", el("code", { text: it.url })), el("p", { class: "note", text: `host ${it.host}` }));
    if (it.warning) shown.append(el("p", { class: "caution", text: it.warning }));
  }
  if (!may("answer")) return;
  const readers = [];
  for (const field of it.fields || []) {
    const legend = field.title || (it.author === "model" ? `Question ${readers.length + 1}` : field.name);
    const box = el("fieldset", { class: "field" }, el("legend", { text: legend }), field.description ? el("p", { class: "note", text: field.description }) : null);
    const choices = field.choices || [];
    const own = it.author === "model" ? el("input", { type: "text", placeholder: "Another answer", "aria-label": "Another answer", maxlength: "2000" }) : null;
    if (choices.length || field.type === "boolean") {
      const many = field.type === "array";
      const boxes = (choices.length ? choices : ["true", "false"]).map((value, place) => {
        const input = el("input", { type: many ? "checkbox" : "radio", name: `${it.id}-${field.name}`, value });
        const detail = (field.details || [])[place];
        box.append(el("label", { class: "option" }, input, el("span", {}, value, detail ? el("span", { class: "note", text: ` ${detail}` }) : null)));
        return input;
      });
      if (own) box.append(own);
      readers.push([field, () => {
        const picked = boxes.filter((each) => each.checked).map((each) => each.value);
        if (own && own.value.trim()) many ? picked.push(own.value.trim()) : picked.splice(0, picked.length, own.value.trim());
        if (many) return picked;
        return field.type === "boolean" && picked.length ? picked[0] === "true" : picked[0];
      }]);
    } else {
      const input = el("input", { type: field.type === "number" || field.type === "integer" ? "number" : "text", step: field.type === "integer" ? "1" : "any", "aria-label": field.title || field.name, value: field.default });
      box.append(input);
      readers.push([field, () => input.value === "" ? undefined : input.type === "number" ? Number(input.value) : input.value]);
    }
    shown.append(box);
  }
  shown.append(el("div", { class: "answers" },
    el("button", { type: "button", class: "primary", onclick: () => {
      const values = {};
      for (const [field, read] of readers) {
        const value = read();
        if (value === undefined || (Array.isArray(value) && !value.length && field.required)) {
          if (field.required) return say(`An answer to “${text(field.title || field.name)}” is missing.`);
          continue;
        }
        values[field.name] = value;
      }
      answer(shown, readers.length ? { answer: "yes", values } : { answer: "yes" });
    } }, it.url ? "I have opened it" : "Send"),
    el("button", { type: "button", onclick: () => answer(shown, { answer: "no" }) }, it.author === "model" ? "No answer" : "Refuse")));
}

/* ---- the record */

let most = 50;

function askRecord() {
  const choice = $("record-session");
  const before = choice.value;
  const ids = state.sessions.map((each) => [each.id, `${each.id.slice(0, 8)} ${each.title || ""}`]);
  choice.replaceChildren(el("option", { value: "", text: "all" }), ...ids.map(([id, words]) => el("option", { value: id, text: words })));
  choice.value = ids.some(([id]) => id === before) ? before : "";
  ask({ type: "record", denied: $("only-denied").checked, session: choice.value, limit: most });
}

function listDecisions(message) {
  const rows = message.decisions.map((it) => {
    const because = it.because || {};
    const cell = it.cell || {};
    const tier = (it.tiers || [])[0] || "malformed";
    const answered = it.answer ? `answered ${it.answer.yes ? "yes" : "no"} by ${text(it.answer.client || it.answer.by)}` : "";
    const ended = it.outcome ? `exit ${it.outcome.status}${it.outcome.ended_by ? `, ended by ${it.outcome.ended_by}` : ""}` : "";
    return el("li", {},
      el("span", { class: "row" }, el("span", { class: `badge ${it.verdict === "deny" ? "bad" : "good"}`, text: it.verdict === "deny" ? "denied" : "allowed" }),
        el("span", { class: `badge ${tier in TIERS ? TIERS[tier] : "bad"}`, text: tier }), el("span", { class: "soft", text: `${it.id} · ${time(it.time)} · ${text(it.tool)}${it.agent && it.agent !== "main" ? ` · ${it.agent}` : ""}` })),
      el("code", { text: it.line }),
      el("span", { class: "soft", text: [text(because.text || (it.problem || {}).what), cell.mode ? `${cell.tier} × ${cell.mode} = ${cell.ruling}` : "", answered, ended].filter(Boolean).join(" · ") }));
  });
  $("decisions").replaceChildren(...rows);
  $("no-decisions").hidden = rows.length > 0;
  $("more").hidden = rows.length < message.limit || most >= 300;
}

/* ---- the controls */

$("sign-in-form").addEventListener("submit", (submit) => {
  submit.preventDefault();
  const secret = $("token").value.trim();
  $("token").value = "";
  if (secret) signIn(secret);
});
$("sign-out").addEventListener("click", signOut);
$("tab-sessions").addEventListener("click", () => show("sessions"));
$("tab-record").addEventListener("click", () => { most = 50; show("record"); });
$("back").addEventListener("click", leave);
$("filters").addEventListener("submit", (submit) => { submit.preventDefault(); most = 50; askRecord(); });
$("only-denied").addEventListener("change", () => { most = 50; askRecord(); });
$("record-session").addEventListener("change", () => { most = 50; askRecord(); });
$("more").addEventListener("click", () => { most = Math.min(most + 100, 300); askRecord(); });
$("interrupt").addEventListener("click", () => ask({ type: "line", session: state.watched, line: { type: "interrupt" } }));
$("composer").addEventListener("submit", (submit) => {
  submit.preventDefault();
  const words = $("prompt").value.trim();
  if (words && ask({ type: "line", session: state.watched, line: { type: "prompt", text: words } })) $("prompt").value = "";
});
$("prompt").addEventListener("keydown", (key) => {
  if (key.key === "Enter" && (key.ctrlKey || key.metaKey)) $("composer").requestSubmit();
});
document.addEventListener("keydown", (key) => {
  if (key.key === "Escape" && state.view === "session" && !["TEXTAREA", "INPUT"].includes(document.activeElement.tagName)) leave();
});

/* A one-time link has its code in the fragment, which no server gets. It is removed from the address at once. */
function start() {
  const code = location.hash.slice(1);
  if (code) history.replaceState(null, "", "/");
  if (/^rf[tl]_[A-Za-z0-9_-]{20,100}$/.test(code)) return signIn(code);
  return state.signedIn ? null : begin();
}

addEventListener("hashchange", () => { if (location.hash.startsWith("#rf")) start(); });
fresh();
start();
