import { dictionary } from "@zxcvbn-ts/language-common";

/** Some 49,000 passwords that people choose and breaches show, lowercase. */
const common: ReadonlySet<string> = new Set(dictionary["passwords-common"] as readonly string[]);

const longestUnit = 12;
const runs = ["abcdefghijklmnopqrstuvwxyz", "01234567890123456789", "qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm"];
const leet: Record<string, string> = { "0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", $: "s", "!": "i" };

/** The shortest text of which `text` is a repetition: `abcabc` → `abc`. */
function unitOf(text: string): string {
  for (let length = 1; length <= Math.min(longestUnit, text.length / 2); length++) {
    if (text.length % length === 0 && text.slice(0, length).repeat(text.length / length) === text) return text.slice(0, length);
  }
  return text;
}

/** Whether a text is a stretch of the alphabet, the digits or a keyboard's rows, either way round. */
function isRun(text: string): boolean {
  const backwards = [...text].reverse().join("");
  return runs.some((run) => run.repeat(2).includes(text) || run.repeat(2).includes(backwards));
}

/**
 * Whether a password is on the list of common and breached ones, as it is, with its letters swapped for look-alikes, repeated, or dressed up with digits
 * and signs at its end (`Password2026!!!!`): those are the first things a guesser tries.
 */
export function isCommonPassword(password: string): boolean {
  const folded = password.toLowerCase();
  const stem = folded.replace(/[^\p{L}]+$/u, "");
  const candidates = [folded, ...(stem.length >= 4 && stem.length > folded.length / 3 ? [stem] : [])];
  return candidates.some((text) => {
    const plain = unitOf(text);
    const unleet = [...plain].map((letter) => leet[letter] ?? letter).join("");
    return common.has(text) || common.has(plain) || common.has(unleet) || isRun(plain);
  });
}
