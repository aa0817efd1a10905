import fc from "fast-check";
import { expect, test } from "vitest";
import { ScriptError, sqlStatements } from "./sql-statements.ts";

async function* inPieces(text: string, size: number): AsyncGenerator<string> {
  for (let at = 0; at < text.length; at += size) yield text.slice(at, at + size);
}
async function all(statements: AsyncIterable<string>): Promise<string[]> {
  const list: string[] = [];
  for await (const statement of statements) list.push(statement);
  return list;
}
const cut = (text: string, size = text.length || 1) => all(sqlStatements(inPieces(text, size), 1_000_000));

test.each([
  ["select 1; select 2;", ["select 1", "select 2"]],
  ["select ';'';'; select 2;", ["select ';'';'", "select 2"]],
  ["select E'\\';'; select 2;", ["select E'\\';'", "select 2"]],
  ["select '\\'; select 2;", ["select '\\'", "select 2"]],
  ['select "a;""b"; select 2;', ['select "a;""b"', "select 2"]],
  ["select $$;$$; select $a$;$$;$a$;", ["select $$;$$", "select $a$;$$;$a$"]],
  ["-- a;b\nselect 1; /* ; /* ; */ ; */ select 2;", ["-- a;b\nselect 1", "/* ; /* ; */ ; */ select 2"]],
  ["create rule r as on insert to t do (select 1; select 2);", ["create rule r as on insert to t do (select 1; select 2)"]],
  [
    "create or replace function f() returns int language sql begin atomic select case when true then 1 else 2 end; select 2; end; select 3;",
    [
      "create or replace function f() returns int language sql begin atomic select case when true then 1 else 2 end; select 2; end",
      "select 3",
    ],
  ],
  ["begin; commit;", ["begin", "commit"]],
  ["select 1e5; select a$b; select $1;", ["select 1e5", "select a$b", "select $1"]],
  [";;\n ;", []],
  ["select 1; -- the end", ["select 1"]],
])("%j", async (text, statements) => {
  for (const size of [1, 2, 3, 7, 1_000]) expect(await cut(text, size), `in pieces of ${size}`).toEqual(statements);
});

test.each(["select 1", "select 'a;", "select $$;", "/* ;", 'select "a'])("%j ends too early", async (text) => {
  await expect(cut(text)).rejects.toThrow(ScriptError);
});

test("a statement over the limit is refused while it is read, not when it ends", async () => {
  const endless = (async function* () {
    for (;;) yield "'".padEnd(1_000, "a");
  })();
  await expect(all(sqlStatements(endless, 10_000))).rejects.toThrow(ScriptError);
});

test("strings of any content come out whole, wherever the script is broken", async () => {
  const quoted = fc.string({ unit: "binary" }).map((text) => `'${text.replaceAll("'", "''")}'`);
  const escaped = fc.string({ unit: "binary" }).map((text) => `E'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`);
  const named = fc.string({ unit: "binary" }).map((text) => `"${text.replaceAll('"', '""')}"`);
  const statement = fc
    .array(fc.oneof(quoted, escaped, named), { minLength: 1, maxLength: 4 })
    .map((parts) => `select ${parts.join(", ")} as v`);
  await fc.assert(
    fc.asyncProperty(fc.array(statement, { maxLength: 5 }), fc.integer({ min: 1, max: 100 }), async (statements, size) => {
      expect(await cut(statements.map((text) => `${text};\n`).join(""), size)).toEqual(statements);
    }),
  );
});
