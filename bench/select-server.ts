import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";

/** The bare thing beside a key's check: a server that answers what one raw indexed select finds. `/p99` answers its own service time since it was last asked. */
const pool = new pg.Pool({ connectionString: process.env.BENCH_DATABASE_URL ?? "", max: 10, options: "-c search_path=kapstone" });
let times: number[] = [];

async function select(id: string, response: ServerResponse): Promise<void> {
  const start = performance.now();
  const { rows } = await pool.query({ name: "raw", text: "select id, name from credentials where id = $1", values: [id] });
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(rows[0]));
  times.push(performance.now() - start);
}

const server = createServer((request, response) => {
  if (request.url === "/p99") {
    const sorted = times.sort((a, b) => a - b);
    times = [];
    response.end(JSON.stringify(sorted[Math.floor(sorted.length * 0.99)] ?? null));
  } else select((request.url ?? "/").slice(1), response).catch(() => response.writeHead(500).end());
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
