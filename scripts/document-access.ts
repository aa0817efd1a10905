import { writeFileSync } from "node:fs";
import { services } from "../api/app.ts";
import type { Access } from "../api/http/access.ts";
import { builtInRoles, permissionNames, permissions } from "../api/http/permissions.ts";
import type { Service } from "../api/http/route.ts";
import { secretPattern, secretPrefixes } from "../platform/secrets.ts";

const memberKinds: readonly string[] = ["session", "jwt"];
const code = (text: string): string => `\`${text}\``;

/** Who may call, as a reader says it: `members with kaps.read`, `keys with read`. */
function whoMay(access: Access): string {
  if (access.open) return "anyone";
  const parts: string[] = [];
  if (access.kinds.some((kind) => memberKinds.includes(kind))) {
    parts.push(access.permission === null ? "members" : `members with ${code(access.permission)}`);
  }
  const others = access.kinds.filter((kind) => !memberKinds.includes(kind));
  if (others.length > 0) parts.push(`${others.map(code).join(", ")}${access.scope === null ? "" : ` with scope ${code(access.scope)}`}`);
  return parts.join("; ");
}

function tableOf({ name, routes }: Service): string {
  const rows = routes
    .map(({ method, path, access }) => `| ${method} | ${code(path)} | ${whoMay(access)} | ${access.open ? "" : access.otherKinds} |`)
    .join("\n");
  return `### ${name}\n\n| Method | Path | Who may call | Other kinds hear |\n|---|---|---|---|\n${rows}\n`;
}

/** docs/access.md, made from the declarations that are enforced. */
export function accessPage(): string {
  const roles = Object.keys(builtInRoles);
  const grants = permissionNames
    .map(
      (name) =>
        `| ${code(name)} | ${permissions[name].line} | ${code(permissions[name].scope)} | ${roles.map((role) => (builtInRoles[role]?.has(name) ? "yes" : "")).join(" | ")} |`,
    )
    .join("\n");
  return `# Access

Made from the route table; run \`npm run docs\` after changing it. What stands here is what is enforced: each route declares its rule beside its path, one place
checks it, and a test tries every kind of credential on every route.

A rule is decided in this order: a kind of credential that a surface does not know is 401 or 403 (last column); an id of another organisation is 404; a missing permission
or scope is 403. Members are people with a session (\`kses_\`, the cookie) or a JWT. A session that must enrol a second factor first may only enrol, sign out and ask
who it is.

## Secrets

| Starts with | Pattern |
|---|---|
${secretPrefixes.map((prefix) => `| ${code(prefix)} | ${code(secretPattern(prefix))} |`).join("\n")}

The last six characters are a checksum (CRC-32 of everything before them, in base62). A secret found in public is revoked by \`POST /v1/auth/leaked\`.

## Permissions

The scope is what an API key or token needs for the same; a key gets a scope only from someone who holds every permission it covers. Custom roles hold any set of these.

| Permission | What it allows | Scope | ${roles.join(" | ")} |
|---|---|---|${roles.map(() => "---|").join("")}
${grants}

## Routes

${services.map(tableOf).join("\n")}`;
}

if (import.meta.main) writeFileSync(new URL("../docs/access.md", import.meta.url), accessPage());
