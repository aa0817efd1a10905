import type { Scope } from "./caller.ts";

/** Everything a member can be allowed to do, with a line for people and the key scope that covers the same (decided §3). */
export const permissions = {
  "org.settings": { line: "Change sign-in settings, branding and the password, session and second-factor policy", scope: "admin" },
  "members.read": { line: "See the members of the organisation", scope: "read" },
  "members.manage": { line: "Invite and remove members and change their roles", scope: "admin" },
  "roles.manage": { line: "Create, change and delete custom roles", scope: "admin" },
  "keys.manage": { line: "Create, rotate and revoke API keys, service tokens and app tokens", scope: "admin" },
  "agents.manage": { line: "Create and delete agents and their keys", scope: "admin" },
  "audit.read": { line: "Read and export the audit log", scope: "admin" },
  "workspaces.manage": { line: "Create, rename and delete workspaces and projects", scope: "admin" },
  "kaps.read": { line: "See kaps, their files, runs and logs", scope: "read" },
  "kaps.write": {
    line: "Create, save, restore, disable and delete kaps, and change their triggers, tokens, secrets and audience",
    scope: "write",
  },
  "kaps.data": { line: "Read and change the database and files of kaps", scope: "write" },
  "artifacts.read": { line: "Read artifacts and their discussions", scope: "read" },
  "artifacts.write": { line: "Publish, annotate, share and decide", scope: "write" },
  "knowledge.read": { line: "Read claims, pages, sources and everything derived from them", scope: "read" },
  "knowledge.write": { line: "Assert and retract claims, resolve and merge entities", scope: "write" },
  "data.read": { line: "Read rows of the organisation's tables", scope: "read" },
  "data.write": { line: "Change rows of the organisation's tables", scope: "write" },
  "data.admin": { line: "Create and drop tables", scope: "admin" },
  "board.read": { line: "Read products, stories, comments and sprints", scope: "read" },
  "board.write": { line: "Change products, stories, comments and sprints", scope: "write" },
  "comms.read": { line: "Read mailboxes and their messages", scope: "read" },
  "comms.write": { line: "Create mailboxes and send messages", scope: "write" },
  "comms.admin": { line: "Set mailbox quotas", scope: "admin" },
  "store.read": { line: "Read the organisation's stored objects", scope: "read" },
  "store.write": { line: "Change the organisation's stored objects", scope: "write" },
  "webhooks.manage": { line: "Create, change and delete outgoing webhooks", scope: "admin" },
  "events.read": { line: "Read the organisation's events and anomaly feed", scope: "read" },
} as const satisfies Record<string, { line: string; scope: Scope }>;

export type Permission = keyof typeof permissions;
export const permissionNames = Object.keys(permissions) as Permission[];

const all: ReadonlySet<string> = new Set(permissionNames);
const member: ReadonlySet<string> = new Set(permissionNames.filter((name) => permissions[name].scope !== "admin"));
const viewer: ReadonlySet<string> = new Set(permissionNames.filter((name) => permissions[name].scope === "read"));
const none: ReadonlySet<string> = new Set();

/** Roles every organisation has. Owners and admins hold every permission; what only an owner may do is a rule of its own (the last owner stays). */
export const builtInRoles: Record<string, ReadonlySet<string>> = { owner: all, admin: all, member, viewer };

/** The permissions of a built-in role; a name that is none has no permissions. */
export function permissionsOfRole(role: string): ReadonlySet<string> {
  return builtInRoles[role] ?? none;
}
