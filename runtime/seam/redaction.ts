/** Shorter values are not redacted: replacing every "7" in a log hides the log, not a secret. */
const shortestSecret = 4;

const literal = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&");

const asFormField = (value: string): string => new URLSearchParams({ "": value }).toString().slice(1);

/**
 * A function that replaces every exact secret value in a text by `[secret NAME]`, also where the value appears as JSON, a URL component or a
 * form's field would write it (decided §7.3: exact secret values are redacted from logs and details). Longer values win over values they contain.
 */
export function secretRedactor(secrets: Record<string, string>): (text: string) => string {
  const names = new Map<string, string>();
  for (const [name, value] of Object.entries(secrets)) {
    if (value.length < shortestSecret) continue;
    for (const form of [value, JSON.stringify(value).slice(1, -1), encodeURIComponent(value.toWellFormed()), asFormField(value)])
      if (!names.has(form)) names.set(form, name);
  }
  if (names.size === 0) return (text) => text;
  const forms = [...names.keys()].sort((a, b) => b.length - a.length);
  const pattern = new RegExp(forms.map(literal).join("|"), "g");
  return (text) => text.replace(pattern, (found) => `[secret ${names.get(found)}]`);
}
