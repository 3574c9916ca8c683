// The side panel, the filters, the search and the pointer.

const byId = (id) => document.getElementById(id);
function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// --- the story: what happened, in order, without the traffic -----------------------------------------------------------
function storyRows() {
  const rows = [];
  data.faults.forEach((fault, index) => rows.push({ at: fault.begin, kind: "fault", text: fault.text +
    (fault.end > fault.begin ? ", for " + timeText(fault.end - fault.begin) : ""), what: { type: "fault", index } }));
  deadTimes.forEach(([node, begin, end, why], index) => {
    if (why !== "not started yet") rows.push({ at: begin, kind: "process", text: nodeName(node) + ": " + why, what: { type: "absence", index } });
    if (end < data.end) rows.push({ at: end, kind: "process", text: nodeName(node) + " starts", what: { type: "absence", index } });
  });
  for (const bar of [...data.calls, ...data.operations]) {
    const twice = bar.type === "call" && /^(launch|await)/.test(bar.label);  // the operation tells it
    if (bar.concerned || (bar.outcome !== 0 && !twice))
      rows.push({ at: bar.outcome === 0 ? bar.begin : bar.end, kind: outcomeNames[bar.outcome], concerned: bar.concerned,
        text: nodeName(bar.node) + " " + shortLabel(bar) + ": " + (bar.outcome === 2 ? "unanswered" : bar.detail.replace(/^count .*?\(life \d+\): /, "")), what: bar });
  }
  for (const [at, node, level, text] of data.logs)
    if (level >= 3) rows.push({ at, kind: "log", text: nodeName(node) + " says: " + texts[text], time: at });
  rows.sort((a, b) => a.at - b.at);
  if (!data.held) rows.push({ at: data.end, kind: "violation", text: "VIOLATION " + data.oracle, time: data.end });
  return rows;
}

function makeRow(row) {
  const line = element("div", "row " + row.kind + (row.concerned ? " concerned" : ""));
  line.append(element("time", "", timeText(row.at)), row.text);
  line.onclick = () => {
    if (row.what) select(row.what);
    show(row.at);
  };
  return line;
}

function fillStory() {
  const story = byId("story"), rows = storyRows(), most = 3000;
  if (data.truncated) story.append(element("p", "note", "Truncated: of " + data.entries + " entries this page holds " +
    "those from number " + data.skipped + " on, as many as fit. Faults, processes, calls and operations are all here."));
  story.append(element("p", "note", rows.length + " faults, deaths, failures and warnings. A click goes there."));
  let first = null;  // of what the diagram shows in the beginning
  for (const row of rows.slice(0, most)) {
    const line = makeRow(row);
    story.append(line);
    if (!first && !data.held && row.at >= data.focus[0]) first = line;
  }
  if (rows.length > most) story.append(element("p", "note", rows.length - most + " more are not listed."));
  if (first) story.scrollTop = first.offsetTop - story.offsetTop - 40;
}

// Brings a time into view.
function show(time) {
  const y = yOfTime(time);
  if (y < headHeight + 30 || y > view.height - 30) {
    view.top = positionOf(time) - (view.height - headHeight) * 0.4 / view.scale;
    fitted = null;
  }
  redraw();
}

// --- what is selected ----------------------------------------------------------------------------------------------------
function openTab(name) {
  for (const each of ["story", "detail", "legend"]) {
    byId(each).hidden = each !== name;
    byId("tab-" + each).className = each === name ? "on" : "";
  }
}

function link(panel, text, action) {
  const line = element("div", "row", text);
  line.onclick = action;
  panel.append(line);
}

function select(what) {
  selected = what;
  const panel = byId("detail");
  panel.textContent = "";
  const title = (text) => panel.append(element("h3", "", text));
  const block = (text) => panel.append(element("pre", "", text));
  if (what.type === "step") describeStep(what.index, title, block, panel);
  else if (what.type === "message") describeMessage(what.index, title, block, panel);
  else if (what.type === "fault") {
    const fault = data.faults[what.index];
    title("Fault");
    block(fault.text + "\nbegins " + timeText(fault.begin, 6) + "\nends   " + timeText(fault.end, 6));
  } else if (what.type === "absence") {
    const [node, begin, end, why] = deadTimes[what.index];
    title(nodeName(node) + " has no process");
    block(why + "\nfrom " + timeText(begin, 6) + "\nto   " + timeText(end, 6));
  } else if (what.type === "futures") {
    const [at] = data.futures[what.index];
    title("Futures from " + timeText(at, 6));
    block(futuresText(what.index) + "\nUp to there everything is as it was; from there on networks, disks, clocks and programs draw anew, and faults come earlier or later.");
  } else if (what.type === "pause") {
    const pause = data.pauses[what.index];
    title(nodeName(pause.node) + " is paused");
    block("from " + timeText(pause.begin, 6) + "\nto   " + timeText(pause.end, 6));
  } else describeBar(what, title, block, panel);
  openTab("detail");
  redraw();
}

function futuresText(index) {
  const [, drawn, failed] = data.futures[index];
  return failed + " of " + drawn + " futures that were drawn anew from here fail in the same way";
}

function describeStep(index, title, block, panel) {
  title(nodeName(steps.node[index]) + " at " + timeText(steps.at[index], 6));
  block(texts[steps.event[index]]);
  const effects = effectsOf(index);
  title("Effects (" + effects.length + ")");
  block(effects.join("\n") || "none");
  title("State afterwards");
  block(texts[steps.state[index]].replace(/([,;]) /g, "$1\n  ") || "-");
  const own = stepsOfNode[steps.node[index]], place = own.indexOf(index);
  const go = (to) => () => { select({ type: "step", index: to }); show(steps.at[to]); };
  if (place > 0) link(panel, "previous event of this node (p)", go(own[place - 1]));
  if (place + 1 < own.length) link(panel, "next event of this node (n)", go(own[place + 1]));
}

function describeMessage(index, title, block, panel) {
  const fate = messages.fate[index];
  title(kindNames[messages.kind[index]] + " from " + nodeName(messages.from[index]) + " to " + nodeName(messages.to[index]));
  block(texts[messages.text[index]]);
  const end = fate === ARRIVED ? "arrived " + timeText(messages.ended[index], 6) + ", after " + timeText(messages.ended[index] - messages.sent[index])
    : fate === LOST ? "lost, known at " + timeText(messages.ended[index], 6) : data.nodes[messages.to[index]].ours ? "still on its way at the end" : "what a stranger receives is not recorded";
  block("sent    " + timeText(messages.sent[index], 6) + "\n" + end);
  for (const [name, step] of [["sent by this event", messages.sentStep[index]], ["arrived in this event", messages.arrivedStep[index]]])
    if (step >= 0) link(panel, name + ": " + texts[steps.event[step]], () => { select({ type: "step", index: step }); show(steps.at[step]); });
  const others = (together.get(index) || []).filter((other) => other !== index);
  if (others.length === 0) return;
  title("On the same line in this view (" + others.length + ")");
  for (const other of others.slice(0, 40)) link(panel, texts[messages.text[other]], () => select({ type: "message", index: other }));
}

function describeBar(bar, title, block, panel) {
  title(nodeName(bar.node) + ": " + bar.label);
  block(outcomeNames[bar.outcome] + (bar.concerned ? " (the violation speaks of it)" : "") + "\n" + bar.detail);
  block("from " + timeText(bar.begin, 6) + "\nto   " + timeText(bar.end, 6));
  const during = (begin, end) => begin <= bar.end && end >= bar.begin;
  const causes = storyRows().filter((row) => (row.kind === "fault" && during(data.faults[row.what.index].begin, data.faults[row.what.index].end)) ||
    (row.kind === "process" && during(row.at, row.at)) || (row.kind === "log" && during(row.at, row.at)));
  title("Meanwhile: faults, deaths, warnings (" + causes.length + ")");
  for (const row of causes.slice(0, 40)) panel.append(makeRow(row));
  const word = bar.label.split(" ")[0];
  const others = [...data.operations, ...data.calls].filter((other) => other !== bar && other.type === bar.type && during(other.begin, other.end) &&
    (bar.type === "operation" ? other.tag === bar.tag : other.label.split(" ")[0] === word) && other.node !== bar.node);
  title("The same elsewhere (" + others.length + ")");
  for (const other of others.slice(0, 40))
    panel.append(makeRow({ at: other.begin, kind: outcomeNames[other.outcome], concerned: other.concerned, text: nodeName(other.node) + ": " + outcomeNames[other.outcome] + (other.outcome === 1 ? ", " + other.detail.replace(/^count .*?: /, "") : ""), what: other }));
}

// --- search ----------------------------------------------------------------------------------------------------------------
let hits = [], hitAt = -1;
function search(words) {
  hits = [];
  hitAt = -1;
  hitSteps = new Set();
  hitMessages = new Set();
  hitBars = new Set();
  const wanted = words.trim().toLowerCase();
  if (wanted !== "") {
    const holds = texts.map((text) => text.toLowerCase().includes(wanted));
    for (let i = 0; i < messages.sent.length; ++i)
      if (holds[messages.text[i]]) { hitMessages.add(i); hits.push({ at: messages.sent[i], what: { type: "message", index: i } }); }
    for (let i = 0; i < steps.at.length; ++i) {
      let found = holds[steps.event[i]];
      for (let k = effectsBegin[i]; !found && k < effectsBegin[i + 1]; ++k) found = holds[data.effects[k]];
      if (found) { hitSteps.add(i); hits.push({ at: steps.at[i], what: { type: "step", index: i } }); }
    }
    for (const bar of [...data.operations, ...data.calls])
      if ((bar.label + " " + bar.detail).toLowerCase().includes(wanted)) { hitBars.add(bar); hits.push({ at: bar.begin, what: bar }); }
    data.faults.forEach((fault, index) => {
      if (fault.text.toLowerCase().includes(wanted)) hits.push({ at: fault.begin, what: { type: "fault", index } });
    });
    hits.sort((a, b) => a.at - b.at);
  }
  byId("hits").textContent = wanted === "" ? "" : hits.length + " hits";
  redraw();
}
function goToHit(by) {
  if (hits.length === 0) return;
  hitAt = (hitAt + by + hits.length) % hits.length;
  byId("hits").textContent = (hitAt + 1) + " of " + hits.length;
  select(hits[hitAt].what);
  show(hits[hitAt].at);
}

// --- controls --------------------------------------------------------------------------------------------------------------
function zoom(factor, y) {
  const at = positionAt(y);
  const whole = (view.height - headHeight) / Math.max(positionOf(data.end), 1e-9);
  view.scale = Math.min(Math.max(view.scale * factor, whole * 0.5), squeeze ? 4000 : 1);
  view.top = at - (y - headHeight) / view.scale;
  fitted = null;
  redraw();
}
function pan(dx, dy) {
  view.left -= dx;
  view.left = Math.min(Math.max(view.left, 0), Math.max(0, columnCount * view.column + axisWidth - view.width));
  view.top -= dy / view.scale;
  fitted = null;
  redraw();
}
function fitFocus() { fit(data.focus[0], data.focus[1]); }

function makeControls() {
  const swatches = { control: kindColours[0], flow: kindColours[1], bulk: kindColours[2], faults: "#e08a00", operations: outcomeColours[0], calls: "#7fc79d", events: "#59636e" };
  for (const name of Object.keys(shown)) {
    const label = element("label"), box = element("input"), swatch = element("span", "swatch");
    box.type = "checkbox";
    box.checked = shown[name];
    box.onchange = () => { shown[name] = box.checked; redraw(); };
    swatch.style.borderColor = swatches[name];
    label.append(box, swatch, " " + name);
    byId("filters").append(label);
  }
  const middle = () => headHeight + (view.height - headHeight) / 2;
  byId("zoom-in").onclick = () => zoom(1.5, middle());
  byId("zoom-out").onclick = () => zoom(1 / 1.5, middle());
  byId("fit-all").onclick = () => fit(0, data.end);
  byId("fit-focus").onclick = fitFocus;
  byId("squeeze").onchange = (event) => {
    const begin = timeOf(view.top), end = timeOf(positionAt(view.height));
    squeeze = event.target.checked;
    place();
    fit(begin, end);
  };
  byId("search").oninput = (event) => search(event.target.value);
  byId("search").onkeydown = (event) => { if (event.key === "Enter") goToHit(event.shiftKey ? -1 : 1); };
  byId("next").onclick = () => goToHit(1);
  byId("previous").onclick = () => goToHit(-1);
  for (const name of ["story", "detail", "legend"]) byId("tab-" + name).onclick = () => openTab(name);
  document.onkeydown = (event) => {
    if (event.target.tagName === "INPUT" || event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = { "+": () => zoom(1.5, middle()), "-": () => zoom(1 / 1.5, middle()), 0: () => fit(0, data.end), f: fitFocus,
      ArrowDown: () => pan(0, -80), ArrowUp: () => pan(0, 80), PageDown: () => pan(0, -0.8 * view.height), PageUp: () => pan(0, 0.8 * view.height),
      ArrowLeft: () => pan(80, 0), ArrowRight: () => pan(-80, 0), n: () => neighbour(1), p: () => neighbour(-1) };
    if (keys[event.key]) { keys[event.key](); event.preventDefault(); }
  };
}
function neighbour(by) {
  if (!selected || selected.type !== "step") return;
  const own = stepsOfNode[steps.node[selected.index]], to = own[own.indexOf(selected.index) + by];
  if (to === undefined) return;
  select({ type: "step", index: to });
  show(steps.at[to]);
}

function makePointer() {
  let drag = null;
  canvas.onwheel = (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY * 0.0015), event.offsetY); };
  canvas.onpointerdown = (event) => { drag = { x: event.offsetX, y: event.offsetY, moved: false }; canvas.setPointerCapture(event.pointerId); };
  canvas.onpointermove = (event) => {
    if (!drag) return hover(event);
    const dx = event.offsetX - drag.x, dy = event.offsetY - drag.y;
    if (!drag.moved && Math.hypot(dx, dy) < 4) return;
    drag = { x: event.offsetX, y: event.offsetY, moved: true };
    pan(dx, dy);
  };
  canvas.onpointerup = (event) => {
    const moved = drag && drag.moved;
    drag = null;
    const what = moved ? null : shapeAt(event.offsetX, event.offsetY);
    if (what) select(what);
  };
  canvas.onpointerleave = () => { byId("tip").hidden = true; };
}
function hover(event) {
  const what = shapeAt(event.offsetX, event.offsetY), tip = byId("tip");
  tip.hidden = !what;
  canvas.style.cursor = what ? "pointer" : "grab";
  if (!what) return;
  tip.textContent = what.type === "step" ? timeText(steps.at[what.index]) + "  " + texts[steps.event[what.index]]
    : what.type === "message" ? nodeName(messages.from[what.index]) + " \u2192 " + nodeName(messages.to[what.index]) + ": " + texts[messages.text[what.index]]
    : what.type === "fault" ? data.faults[what.index].text
    : what.type === "absence" ? nodeName(deadTimes[what.index][0]) + ": " + deadTimes[what.index][3]
    : what.type === "futures" ? futuresText(what.index)
    : what.type === "pause" ? "paused" : nodeName(what.node) + " " + what.label + ": " + outcomeNames[what.outcome];
  tip.style.left = Math.min(event.offsetX + 14, view.width - 260) + "px";
  tip.style.top = Math.min(event.offsetY + 14, view.height - 50) + "px";
}

function makeLegend() {
  const row = (paint, text) => {
    const sample = element("canvas"), line = element("div");
    sample.width = 44;
    sample.height = 20;
    paint(sample.getContext("2d"));
    line.append(sample, text);
    byId("legend").append(line);
  };
  const arrow = (colour, lost) => (brush) => {
    brush.strokeStyle = colour;
    brush.lineWidth = 1.6;
    if (lost) brush.setLineDash([4, 3]);
    brush.beginPath();
    brush.moveTo(2, 4); brush.lineTo(lost ? 26 : 40, lost ? 11 : 16);
    if (!lost) { brush.moveTo(33, 16); brush.lineTo(40, 16); brush.lineTo(36, 10); }
    brush.stroke();
    if (!lost) return;
    brush.setLineDash([]);
    brush.strokeStyle = "#d1242f";
    brush.beginPath();
    brush.moveTo(22, 7); brush.lineTo(30, 15); brush.moveTo(30, 7); brush.lineTo(22, 15);
    brush.stroke();
  };
  const fill = (paint) => (brush) => { brush.fillStyle = paint; brush.fillRect(2, 2, 40, 16); };
  const dot = (colour) => (brush) => { brush.fillStyle = colour; brush.beginPath(); brush.arc(22, 10, 5.5, 0, 7); brush.fill(); };
  row(arrow(kindColours[CONTROL]), "control message (protobuf)");
  row(arrow(kindColours[FLOW]), "flow word: ack, ready, credit, decline");
  row(arrow(kindColours[BULK]), "bulk frame: a slice or a chunk");
  row(arrow(kindColours[CONTROL], true), "lost: its receiving end was gone first");
  outcomeNames.forEach((name, i) => row(fill(outcomeColours[i]), name + " (right of the line: operations by tag; left: the call that waits)"));
  row((brush) => { brush.strokeStyle = "#c8202f"; brush.lineWidth = 3; brush.strokeRect(4, 4, 36, 12); }, "the violation speaks of it");
  row(fill("rgba(240,150,0,0.35)"), "fault, over the columns that it concerns");
  if (data.futures.length !== 0)
    row(fill("rgba(200,32,47,0.6)"), "left edge: how many futures, drawn anew from there, fail in the same way");
  row(fill(stripes.paused), "process paused");
  row(fill(stripes.dead), "process dead");
  row(fill(stripes.absent), "not started yet");
  row(dot("#1f9d55"), "process starts");
  row(dot("#d1242f"), "process ends");
  byId("legend").append(element("p", "note", "Wheel: zoom. Drag, arrow keys: pan. +, -, 0 (all), f (focus). n, p: next and previous event of the node selected. " +
    "A bulk arrow ends when the whole frame is there. Idle time is squeezed unless the box above is cleared: lengths are not to scale then, order is."));
}

// --- begin -------------------------------------------------------------------------------------------------------------------
byId("verdict").textContent = data.held ? "held" : "VIOLATION " + data.oracle;
byId("verdict").className = data.held ? "" : "broken";
byId("seed").textContent = "seed " + data.seed;
byId("replay").textContent = data.replay;
byId("scenario").textContent = data.scenario;
byId("reason").textContent = data.reason;
byId("reason").hidden = data.held;
makeControls();
makePointer();
makeLegend();
fillStory();
place();
new ResizeObserver(() => {
  resize();
  if (fitted) fit(fitted[0], fitted[1]);
  draw();  // now: a canvas of another size is empty
}).observe(stage);
resize();
fitFocus();
draw();
byId("status").textContent = "READY " + columnCount + " nodes, " + steps.at.length + " events, " + messages.sent.length + " messages, " +
  data.operations.length + " operations, " + data.calls.length + " calls, " + data.faults.length + " faults" + (data.truncated ? ", truncated" : "") + "; " + shapes.length + " drawn";
document.title = "Run of seed " + data.seed + (data.held ? "" : ": " + data.oracle) + " READY";
