import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import pg from "pg";

/** The bare thing beside a key's check: a server that answers what one raw indexed select finds. */
const pool = new pg.Pool({ connectionString: process.env.BENCH_DATABASE_URL ?? "", max: 10, options: "-c search_path=kapstone" });
const server = createServer((request, response) => {
  pool
    .query({ name: "raw", text: "select id, name from credentials where id = $1", values: [(request.url ?? "/").slice(1)] })
    .then(({ rows }) => response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(rows[0])))
    .catch(() => response.writeHead(500).end());
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
