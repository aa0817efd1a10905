export type PartKind = { kind: "leaf" } | { kind: "message" } | { kind: "multipart"; boundary: string };

/** Boundary parameters, whole or in numbered pieces (RFC 2231). */
const boundaryParameter = /;\s*boundary(?:\*\d+)?\*?\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))/gi;

/**
 * What a part holds, from its unfolded `Content-Type` and `Content-Transfer-Encoding` values: bytes are latin1 characters. Generous on purpose, since a reader
 * that finds parts where this finds none would be led past the caps.
 */
export function partKind(contentType: string, transferEncoding: string): PartKind {
  const type = (contentType.split(";", 1)[0] ?? "").trim().toLowerCase();
  if (type.startsWith("multipart/")) {
    const pieces = [...contentType.matchAll(boundaryParameter)].map(([, quoted, bare]) => quoted?.replace(/\\(.)/g, "$1") ?? bare ?? "");
    const boundary = pieces.join("").trimEnd();
    return boundary === "" ? { kind: "leaf" } : { kind: "multipart", boundary };
  }
  // An encoded message is bytes to everybody: its lines are no headers.
  const isPlain = !/base64|quoted-printable/i.test(transferEncoding);
  return /^message\/(rfc822|global)$/.test(type) && isPlain ? { kind: "message" } : { kind: "leaf" };
}
