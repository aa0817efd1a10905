const browsers: readonly [RegExp, string][] = [
  [/Edg\//, "Edge"],
  [/OPR\//, "Opera"],
  [/Firefox\//, "Firefox"],
  [/Chrome\//, "Chrome"],
  [/Safari\//, "Safari"],
  [/^curl\//, "curl"],
];
const systems: readonly [RegExp, string][] = [
  [/Android/, "Android"],
  [/iPhone|iPad/, "iOS"],
  [/Windows/, "Windows"],
  [/Mac OS X/, "macOS"],
  [/Linux/, "Linux"],
];

/** What a person would call the device of a user agent: `Firefox on Linux`. What it is not sure of it names as the client names itself. */
export function deviceOf(userAgent: string | null): string {
  if (!userAgent) return "Unknown device";
  const named = (list: readonly [RegExp, string][]): string | undefined => list.find(([pattern]) => pattern.test(userAgent))?.[1];
  const browser = named(browsers) ?? userAgent.split(/[\s/]/, 1)[0]?.slice(0, 60) ?? "Unknown client";
  const system = named(systems);
  return system ? `${browser} on ${system}` : browser;
}
