import { randomBytes } from "node:crypto";

export interface WelcomeOptions {
  /** The API's address, by its name in the deployment's domain. */
  address: string;
  domain: string;
  port: number;
  smtpPort: number;
  /** Whether nobody has signed up yet: then three lines to copy show the way to a first kap. */
  isNew: boolean;
}

const program = `import { db } from "kap";

export default {
  async fetch(request) {
    await db.query("create table if not exists visits (at timestamptz not null default now())");
    await db.query("insert into visits default values");
    const { rows } = await db.query("select count(*)::int as count from visits");
    return Response.json({ visits: rows[0].count });
  },
};
`;

/** What is printed when everything works: the addresses, and on a new platform three lines for any POSIX shell with curl and sed. */
export function welcome(options: WelcomeOptions): string {
  const { address, smtpPort } = options;
  const lines = ["", `Kapstone is ready: ${address}  (API description: ${address}/docs, mail: 127.0.0.1:${smtpPort})`];
  if (options.isNew) lines.push("", "Your first kap, three lines to copy:", "", ...firstKap(options));
  lines.push("", "Ctrl-C stops it; the next start goes on where it was.");
  return `${lines.join("\n")}\n`;
}

/** The three lines. Names in the domain `localhost` are loopback for curl wherever it runs; other domains may not be known to DNS yet. */
function firstKap({ address, domain, port }: WelcomeOptions): string[] {
  const curl = domain === "localhost" ? "curl -s" : `curl -s --connect-to ::127.0.0.1:${port}`;
  const json = "-H 'Content-Type: application/json'";
  const mark = randomBytes(3).toString("hex");
  const signup = {
    org_slug: `org-${mark}`,
    email: `you-${mark}@example.org`,
    password: randomBytes(15).toString("base64url"),
    name: "You",
  };
  const kap = { name: "Visits", main_file: "main.ts", files: [{ path: "main.ts", content: program }] };
  const pick = (field: string): string => `sed -n 's/.*"${field}":"\\([^"]*\\)".*/\\1/p'`;
  return [
    `TOKEN=$(${curl} ${address}/v1/auth/signup ${json} -d '${JSON.stringify(signup)}' | ${pick("session_token")})`,
    `KAP=$(${curl} ${address}/v1/orgs/${signup.org_slug}/kaps -H "Authorization: Bearer $TOKEN" -H 'X-Service-Client: curl' ${json} -d '${JSON.stringify(kap)}')`,
    `${curl} "$(printf %s "$KAP" | ${pick("address")})" -H "Authorization: Bearer $(printf %s "$KAP" | ${pick("bypass_token")})"`,
  ];
}
