/** A byte range asked for, inclusive; null when the header asks for none that is understood (then the whole is answered, RFC 9110 §14.2). */
export function readRange(header: string | undefined, sizeBytes: number): { start: number; end: number } | "unsatisfiable" | null {
  const match = /^bytes=(\d*)-(\d*)$/.exec(header ?? "");
  if (!match || (match[1] === "" && match[2] === "")) return null;
  if (match[1] === "") {
    const length = Number(match[2]);
    return length === 0 || sizeBytes === 0 ? "unsatisfiable" : { start: Math.max(0, sizeBytes - length), end: sizeBytes - 1 };
  }
  const start = Number(match[1]);
  const end = match[2] === "" ? sizeBytes - 1 : Math.min(Number(match[2]), sizeBytes - 1);
  if (match[2] !== "" && Number(match[2]) < start) return null;
  return start >= sizeBytes ? "unsatisfiable" : { start, end };
}
