/** What a run's record says about a thrown value: message, stack and causes as text. */
import { inspect } from "./inspect.ts";
import { stringSlice } from "./primordials.ts";

/** Characters of a detail; the host cuts further and redacts. */
const detailLength = 16_384;

/** Never throws and is never empty, whatever the value does when it is looked at. */
export function describeError(error: unknown): string {
  try {
    const text = Error.isError(error) ? inspect(error) : `Uncaught ${inspect(error)}`;
    if (text !== "") return stringSlice(text, 0, detailLength);
  } catch {
    // A program that has spoiled the builtins is told with what is left.
  }
  try {
    const { stack } = error as { stack?: unknown };
    if (typeof stack === "string" && stack !== "") return stringSlice(stack, 0, detailLength);
  } catch {}
  return "The program threw a value that cannot be shown.";
}
