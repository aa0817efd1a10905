import * as z from "zod";

/** One setting: the environment variable it comes from, what it means, and how its text is read. Secret values are masked wherever they are printed. */
export interface Setting<T> {
  env: string;
  doc: string;
  schema: z.ZodType<T, string | undefined>;
  secret: boolean;
}

export type SettingsOf<S extends Record<string, Setting<unknown>>> = {
  -readonly [K in keyof S]: S[K] extends Setting<infer T> ? T : never;
};

/** Declares a setting read from the environment variable `env`. */
export function setting<T>(
  env: string,
  schema: z.ZodType<T, string | undefined>,
  doc: string,
  options: { secret?: boolean } = {},
): Setting<T> {
  return { env, doc, schema, secret: options.secret ?? false };
}

/** Readers of setting texts. `fallback` is the default and is shown in docs/configuration.md. */
export const text = (fallback: string) => z.string().default(fallback);
export const requiredText = () => z.string().min(1);
export const optionalText = () =>
  z
    .string()
    .optional()
    .transform((value) => (value === "" ? undefined : value));
export const flag = (fallback: boolean) =>
  z
    .enum(["true", "false", "1", "0"])
    .default(fallback ? "true" : "false")
    .transform((value) => value === "true" || value === "1");
export const integer = (fallback: number, min: number, max: number) =>
  z
    .string()
    .regex(/^-?\d+$/, "must be a whole number")
    .default(String(fallback))
    .transform(Number)
    .pipe(z.number().min(min).max(max));
export const port = (fallback: number) => integer(fallback, 0, 65535);
export const list = (fallback: string) =>
  z
    .string()
    .default(fallback)
    .transform((value) =>
      value
        .split(",")
        .map((item) => item.trim())
        .filter((item) => item !== ""),
    );

/** A configuration that cannot be used: every problem in one message, a line each, naming the variable and the fix. */
export class ConfigurationError extends Error {
  override name = "ConfigurationError";
}

/** Reads all settings of a process once. Throws `ConfigurationError` that names every bad variable. */
export function readSettings<S extends Record<string, Setting<unknown>>>(
  settings: S,
  env: Record<string, string | undefined>,
): SettingsOf<S> {
  const values: Record<string, unknown> = {};
  const problems: string[] = [];
  for (const [name, entry] of Object.entries(settings)) {
    const parsed = entry.schema.safeParse(env[entry.env]);
    if (parsed.success) values[name] = parsed.data;
    else problems.push(`${entry.env}: ${parsed.error.issues[0]?.message ?? "is not valid"} (${entry.doc})`);
  }
  if (problems.length > 0) throw new ConfigurationError(`The configuration cannot be used:\n  ${problems.join("\n  ")}`);
  return values as SettingsOf<S>;
}

/** The settings as they may be printed: secrets masked. */
export function printableSettings<S extends Record<string, Setting<unknown>>>(settings: S, values: SettingsOf<S>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(settings).map(([name, entry]) => [entry.env, entry.secret && values[name] !== undefined ? "[set]" : values[name]]),
  );
}

/** Rows of docs/configuration.md: variable, default, meaning. */
export function documentSettings(settings: Record<string, Setting<unknown>>): string {
  const rows = Object.values(settings).map((entry) => {
    const parsed = entry.schema.safeParse(undefined);
    const shown = !parsed.success
      ? "required"
      : parsed.data === undefined || parsed.data === ""
        ? ""
        : `\`${Array.isArray(parsed.data) ? parsed.data.join(",") : String(parsed.data)}\``;
    return `| \`${entry.env}\` | ${shown} | ${entry.doc}${entry.secret ? " (secret)" : ""} |`;
  });
  return ["| Variable | Default | Meaning |", "|---|---|---|", ...rows].join("\n");
}
