const digits = /\d[\w.]*/y;
const word = /[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*/y;
const dollarTag = /\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$/y;

/** A script that ends inside a statement, or holds one that is larger than allowed. */
export class ScriptError extends Error {
  override name = "ScriptError";
}

/**
 * Cuts an SQL script into its statements while it is read, as psql does: a `;` ends a statement unless it stands in a string, a quoted name, a comment, a dollar-quoted
 * text, a bracket, or the `BEGIN ATOMIC … END` body of a function. One statement at a time is in memory, at most `maxLength` characters. `standard_conforming_strings` is
 * taken to be on: whoever runs the statements must see to that.
 */
export async function* sqlStatements(chunks: AsyncIterable<string>, maxLength: number): AsyncGenerator<string> {
  let text = "";
  let scan = newScan();
  for await (const chunk of chunks) {
    text += chunk;
    for (;;) {
      const end = nextEnd(text, scan, false);
      if (end < 0) break;
      const statement = text.slice(0, end).trim();
      text = text.slice(end + 1);
      scan = newScan();
      if (statement !== "") yield statement;
    }
    if (text.length > maxLength) throw new ScriptError(`a statement is longer than ${maxLength} characters`);
  }
  for (;;) {
    const end = nextEnd(text, scan, true);
    if (end < 0) break;
    const statement = text.slice(0, end).trim();
    text = text.slice(end + 1);
    scan = newScan();
    if (statement !== "") yield statement;
  }
  const isInComment = scan.inside !== null && "until" in scan.inside && scan.inside.until === "\n";
  if (scan.inside !== null && !isInComment) throw new ScriptError("the script ends inside a string, a quoted name or a comment");
  if (withoutComments(text) !== "") throw new ScriptError("the script ends inside a statement");
}

interface Scan {
  at: number;
  /** What the scan is inside of: the text that ends it, or a nested comment. */
  inside: { until: string; escapes: boolean } | { comments: number } | null;
  brackets: number;
  words: string[];
  atomic: number;
}

function newScan(): Scan {
  return { at: 0, inside: null, brackets: 0, words: [], atomic: 0 };
}

/** A token that may go on in the next chunk is looked at again when that has come. */
const lookAhead = 80;

/** Where the statement ends, or -1 when more is needed. Goes on where the last call stopped. */
function nextEnd(text: string, scan: Scan, isLast: boolean): number {
  const limit = isLast ? text.length : text.length - lookAhead;
  while (scan.at < limit) {
    if (scan.inside !== null) {
      if (!leaveInside(text, scan, limit)) return -1;
      continue;
    }
    const char = text[scan.at] as string;
    const pair = text.slice(scan.at, scan.at + 2);
    if (char === "'") enter(scan, 1, "'", false);
    else if (char === '"') enter(scan, 1, '"', false);
    else if (pair === "--") enter(scan, 2, "\n", false);
    else if (pair === "/*") {
      scan.inside = { comments: 1 };
      scan.at += 2;
    } else if (char === "$") readDollar(text, scan);
    else if (char === "(") step(scan, 1);
    else if (char === ")") step(scan, -1);
    else if (char === ";" && scan.brackets <= 0 && scan.atomic === 0) return scan.at;
    else if (!readWord(text, scan)) scan.at++;
  }
  return -1;
}

function enter(scan: Scan, length: number, until: string, escapes: boolean): void {
  scan.inside = { until, escapes };
  scan.at += length;
}

function step(scan: Scan, by: number): void {
  scan.brackets += by;
  scan.at++;
}

function readDollar(text: string, scan: Scan): void {
  dollarTag.lastIndex = scan.at;
  const tag = dollarTag.exec(text)?.[0];
  if (tag === undefined) scan.at++;
  else enter(scan, tag.length, tag, false);
}

/** Reads a name or keyword. `E'…'` has escapes; a function's `BEGIN ATOMIC` holds statements up to its `END`, of which `CASE` has one too. */
function readWord(text: string, scan: Scan): boolean {
  word.lastIndex = scan.at;
  const found = word.exec(text)?.[0];
  if (found === undefined) {
    // A number takes its letters along, so that none of them begins a word.
    digits.lastIndex = scan.at;
    const number = digits.exec(text)?.[0];
    if (number === undefined) return false;
    scan.at += number.length;
    return true;
  }
  scan.at += found.length;
  if (/^e$/i.test(found) && text[scan.at] === "'") {
    enter(scan, 1, "'", true);
    return true;
  }
  const lower = found.toLowerCase();
  if (scan.words.length < 4) scan.words.push(lower);
  const isRoutine = scan.words[0] === "create" && /^create (?:or replace )?(?:function|procedure)\b/.test(scan.words.join(" "));
  if (isRoutine && scan.brackets <= 0) {
    if (lower === "begin" || (lower === "case" && scan.atomic > 0)) scan.atomic++;
    else if (lower === "end" && scan.atomic > 0) scan.atomic--;
  }
  return true;
}

/** Moves past the end of what the scan is inside of; false when that has not come yet. */
function leaveInside(text: string, scan: Scan, limit: number): boolean {
  const { inside } = scan;
  if (inside === null) return true;
  if ("comments" in inside) return leaveComment(text, scan, inside, limit);
  for (;;) {
    const end = text.indexOf(inside.until, scan.at);
    const backslash = inside.escapes ? text.indexOf("\\", scan.at) : -1;
    if (backslash >= 0 && (end < 0 || backslash < end)) {
      if (backslash + 1 >= text.length) return stay(scan, backslash);
      scan.at = backslash + 2;
      continue;
    }
    if (end < 0) return stay(scan, Math.max(scan.at, text.length - inside.until.length));
    // A doubled quote is a quote inside; whether one follows must be known.
    const isQuote = inside.until === "'" || inside.until === '"';
    if (isQuote && end + 1 >= text.length && limit !== text.length) return stay(scan, end);
    if (isQuote && text[end + 1] === inside.until) {
      scan.at = end + 2;
      continue;
    }
    scan.at = end + inside.until.length;
    scan.inside = null;
    return true;
  }
}

function leaveComment(text: string, scan: Scan, inside: { comments: number }, limit: number): boolean {
  while (scan.at < limit) {
    const pair = text.slice(scan.at, scan.at + 2);
    if (pair === "/*" || pair === "*/") {
      inside.comments += pair === "/*" ? 1 : -1;
      scan.at += 2;
      if (inside.comments === 0) {
        scan.inside = null;
        return true;
      }
    } else scan.at++;
  }
  return false;
}

function stay(scan: Scan, at: number): false {
  scan.at = at;
  return false;
}

function withoutComments(text: string): string {
  return text
    .replace(/--[^\n]*(?:\n|$)/g, "")
    .replace(/\/\*[\s\S]*?\*\//g, "")
    .trim();
}
