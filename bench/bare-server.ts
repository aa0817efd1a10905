import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import pg from "pg";
import { outwardTo, paths, select, selects, streamed } from "./handlers.ts";

/** The bare thing: `node:http` and `pg` answering what the programs answer. The database is the URL on the command line. */
const database = process.argv[2];
const pool = database === undefined ? null : new pg.Pool({ connectionString: database, max: 8 });
const json = JSON.stringify({ hello: "world" });
const piece = Buffer.alloc(streamed.pieceBytes, 97);

const server = createServer((request, response) => {
  if (request.url === paths.json) {
    response.writeHead(200, { "content-type": "application/json", "content-length": json.length }).end(json);
  } else if (request.url === paths.echo) {
    const pieces: Buffer[] = [];
    request.on("data", (part: Buffer) => pieces.push(part)).on("end", () => response.end(Buffer.concat(pieces)));
  } else if (request.url === paths.outward) {
    fetch(String(request.headers[outwardTo]))
      .then(async (answer) => response.end(await answer.text()))
      .catch((error: unknown) => response.destroy(error as Error));
  } else if (request.url === paths.sql && pool) {
    selectOften(pool).then(
      (row) => response.end(JSON.stringify(row)),
      (error: unknown) => response.destroy(error as Error),
    );
  } else {
    let left = streamed.pieces;
    const body = new Readable({
      read() {
        this.push(left-- > 0 ? piece : null);
      },
    });
    body.pipe(response);
  }
});

async function selectOften(from: pg.Pool): Promise<unknown> {
  let row: unknown;
  for (let at = 0; at < selects; at++) row = (await from.query(select, [at % 10])).rows[0];
  return row;
}

server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
