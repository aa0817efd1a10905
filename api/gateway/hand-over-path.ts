/** Longest path kept through a sign-in; a longer one leads to the start page. */
const maxLength = 2_000;

/**
 * Where to go after a sign-in: an address of `origin` itself, whatever was asked for. Answers an absolute address, because a path that begins with two slashes would
 * be another host's. Paths of the platform on a kap's host lead to its start page, so that no sign-in leads to a sign-in.
 */
export function addressWithin(origin: string, path: string | null | undefined): string {
  const start = `${origin}/`;
  if (!path?.startsWith("/") || path.length > maxLength || !URL.canParse(path, origin)) return start;
  const url = new URL(path, origin);
  if (url.origin !== new URL(origin).origin || url.pathname.startsWith("/__kaps/")) return start;
  return url.href;
}

/** The same as a path with its query: what is written into links and forms. */
export function pathWithin(origin: string, path: string | null | undefined): string {
  return addressWithin(origin, path).slice(new URL(origin).origin.length);
}
