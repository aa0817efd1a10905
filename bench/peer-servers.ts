import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Pool } from "undici";

/** The bare things the platform is measured beside: `http` answers the same JSON; `proxy ORIGIN` is one hop in front of it. */
const [kind, origin] = process.argv.slice(2);
const answer = JSON.stringify({ hello: "world" });

const server =
  kind === "proxy"
    ? createServer((request, response) => {
        pool.dispatch(
          { method: request.method as "GET", path: request.url ?? "/", headers: request.headers, body: null },
          {
            onRequestStart() {},
            onResponseStart(_controller, status, headers) {
              response.writeHead(status, headers as Record<string, string>);
            },
            onResponseData(_controller, chunk) {
              response.write(chunk);
            },
            onResponseEnd() {
              response.end();
            },
            onResponseError() {
              response.destroy();
            },
          },
        );
      })
    : createServer((_request, response) => {
        response.writeHead(200, { "content-type": "application/json", "content-length": answer.length }).end(answer);
      });
const pool = new Pool(origin ?? "http://127.0.0.1", { connections: 256 });
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
