import { loadModule, parseSync } from "libpg-query";
import { readFunctionBody } from "./sql-function-body.ts";
import { membersOf, type SqlNode } from "./sql-tree.ts";

/** A statement, a parameter or a result that the contract refuses. Always 422; `details` holds what PostgreSQL said, where it said something. */
export class SqlRefusal extends Error {
  override name = "SqlError";
  readonly status = 422;
  readonly code: string;
  readonly details: Record<string, string | number> | null;

  constructor(code: string, message: string, details: Record<string, string | number> | null = null) {
    super(message);
    this.code = code;
    this.details = details;
  }
}

const maxSqlBytes = 256 * 1024;
/** PostgreSQL's grammar is parsed recursively; deeper nesting than this is no program's honest need and would exhaust the parser's stack. */
const maxDepth = 400;

const transactionFix = "use db.batch for several statements in one transaction";

/** What may be sent. Everything else is refused by name; the kap's own role is the wall behind this one (design §5). */
const allowed = new Set(
  `SelectStmt InsertStmt UpdateStmt DeleteStmt MergeStmt CreateStmt CreateTableAsStmt AlterTableStmt RenameStmt DropStmt IndexStmt ViewStmt
   CreateSeqStmt AlterSeqStmt TruncateStmt CommentStmt CreateEnumStmt AlterEnumStmt CompositeTypeStmt CreateRangeStmt CreateDomainStmt AlterDomainStmt
   CreateFunctionStmt ReturnStmt AlterFunctionStmt CreateTrigStmt RefreshMatViewStmt ExplainStmt VariableShowStmt CreateStatsStmt AlterStatsStmt ReindexStmt CallStmt
   VacuumStmt`
    .trim()
    .split(/\s+/),
);

/** The refused ones a program is likely to try, by the words it wrote, and what to do instead. */
const refusedNames: Record<string, string> = {
  TransactionStmt: `Transaction control (BEGIN, COMMIT, ROLLBACK, SAVEPOINT) is refused: ${transactionFix}.`,
  VariableSetStmt: "SET and RESET are refused: a setting would outlive the statement. Qualify names or cast values instead.",
  ConstraintsSetStmt: `SET CONSTRAINTS is refused: ${transactionFix}.`,
  ListenStmt: "LISTEN is refused: connections are shared between statements. Poll a table instead.",
  UnlistenStmt: "UNLISTEN is refused: connections are shared between statements.",
  NotifyStmt: "NOTIFY is refused: connections are shared between statements. Write to a table instead.",
  CopyStmt: "COPY is refused: insert rows with INSERT, or read them with SELECT.",
  DoStmt: "DO is refused: create a function and call it.",
  PrepareStmt: "PREPARE is refused: it outlives the statement. Statements with $1 parameters are prepared for you.",
  ExecuteStmt: "EXECUTE is refused: send the statement itself with its parameters.",
  DeallocateStmt: "DEALLOCATE is refused: there are no prepared statements to end.",
  DeclareCursorStmt: "DECLARE CURSOR is refused: page with LIMIT and a key.",
  FetchStmt: "FETCH is refused: page with LIMIT and a key.",
  ClosePortalStmt: "CLOSE is refused: there are no cursors.",
  LockStmt: `LOCK is refused: use SELECT … FOR UPDATE, and ${transactionFix}.`,
  DiscardStmt: "DISCARD is refused: connections are shared between statements.",
  GrantStmt: "GRANT and REVOKE are refused: a kap's tables are its own.",
  GrantRoleStmt: "GRANT and REVOKE are refused: a kap's tables are its own.",
  AlterDefaultPrivilegesStmt: "ALTER DEFAULT PRIVILEGES is refused: a kap's tables are its own.",
  CreateSchemaStmt: "CREATE SCHEMA is refused: a kap has exactly one schema.",
  CreateExtensionStmt: "CREATE EXTENSION is refused: ask the operator of the platform for it.",
  RuleStmt: "CREATE RULE is refused: use a trigger.",
};

/** Functions that hold something beyond their statement, wait, or reach beyond the database. */
const refusedFunctions =
  /^(?:set_config|pg_(?:try_)?advisory_.*|pg_sleep(?:_for|_until)?|pg_notify|lo_.*|lo(?:read|write)|dblink.*|pg_(?:terminate|cancel)_backend|pg_read_.*|pg_ls_.*|pg_stat_file|pg_stat_reset.*|(?:query|table|cursor|schema|database)_to_xml.*|ts_stat|pg_logical_.*|pg_create_.*_slot|pg_export_snapshot)$/;

/** Loads the parser. Once a process; to be awaited before `checkStatement`. */
export const loadSqlGuard: () => Promise<void> = () => loadModule();

/**
 * What a statement can do to the size of the database, as far as its text tells, from the least to the most: read; drop, which calls nothing of the kap's;
 * free space, by way of which triggers and functions are called; make it grow, which is everything else.
 */
export type SizeEffect = (typeof sizeEffects)[number];
const sizeEffects = ["reads", "drops", "frees", "grows"] as const;

/** The effect of the one that has the most. */
export const mostEffect = (effects: readonly SizeEffect[]): SizeEffect =>
  sizeEffects[Math.max(0, ...effects.map((effect) => sizeEffects.indexOf(effect)))] ?? "grows";

const effectOfKind: Record<string, SizeEffect> = {
  SelectStmt: "reads",
  VariableShowStmt: "reads",
  ExplainStmt: "reads",
  DropStmt: "drops",
  DeleteStmt: "frees",
  TruncateStmt: "frees",
  VacuumStmt: "frees",
  ReindexStmt: "frees",
};

const verdicts = new Map<string, SqlRefusal | SizeEffect>();
const maxVerdicts = 1_000;
/** Longer texts are parsed each time: they are rare and would fill the cache. */
const maxCachedLength = 8_192;

/**
 * Refuses what is not exactly one allowed statement (one trailing `;` is one statement, decided §7.3). The real PostgreSQL parser decides,
 * and its verdict on a text is remembered. Answers what the statement can do to the size of the database.
 * @throws SqlRefusal MULTIPLE_STATEMENTS, INVALID_SQL with the reason
 */
export function checkStatement(sql: string): SizeEffect {
  let verdict = verdicts.get(sql);
  if (verdict === undefined) {
    verdict = judge(sql);
    if (sql.length <= maxCachedLength) {
      if (verdicts.size >= maxVerdicts) verdicts.delete(verdicts.keys().next().value ?? "");
      verdicts.set(sql, verdict);
    }
  }
  if (typeof verdict !== "string") throw new SqlRefusal(verdict.code, verdict.message, verdict.details);
  return verdict;
}

function judge(sql: string): SqlRefusal | SizeEffect {
  if (Buffer.byteLength(sql) > maxSqlBytes) return new SqlRefusal("INVALID_SQL", `The statement is longer than ${maxSqlBytes} bytes.`);
  if (sql.includes("\0")) return new SqlRefusal("INVALID_SQL", "The statement holds a NUL character, which PostgreSQL text cannot.");
  if (nesting(sql) > maxDepth) return new SqlRefusal("INVALID_SQL", `The statement nests deeper than ${maxDepth} levels.`);
  let statements: { stmt?: unknown }[];
  try {
    statements = parseSync(sql).stmts ?? [];
  } catch (error) {
    return new SqlRefusal(
      "INVALID_SQL",
      `PostgreSQL cannot read the statement: ${error instanceof Error ? error.message : String(error)}.`,
    );
  }
  if (statements.length === 0) return new SqlRefusal("INVALID_SQL", "There is no statement: send exactly one.");
  if (statements.length > 1)
    return new SqlRefusal(
      "MULTIPLE_STATEMENTS",
      `These are ${statements.length} statements: send exactly one, or all of them with db.batch.`,
    );
  try {
    return inspect(statements[0]?.stmt, sql);
  } catch (error) {
    if (error instanceof SqlRefusal) return error;
    throw error;
  }
}

/** The depth of brackets and of the operators that nest without one, as an upper bound that needs no parser. */
function nesting(sql: string): number {
  let depth = 0;
  let deepest = 0;
  for (let at = 0; at < sql.length; at++) {
    const code = sql.charCodeAt(at);
    if (code === 0x28 || code === 0x5b) deepest = Math.max(deepest, ++depth);
    else if (code === 0x29 || code === 0x5d) depth--;
  }
  return deepest;
}

/** Looks at everything in a statement, the bodies of functions included. */
function inspect(root: unknown, sql: string): SizeEffect {
  const bodies: unknown[] = [];
  const effects: SizeEffect[] = [];
  for (const [name, value] of membersOf(root, bodies)) {
    if (/^[A-Z]/.test(name) && name.endsWith("Stmt")) {
      refuseKind(name);
      effects.push(effectOfKind[name] ?? "grows");
    }
    if (name === "VacuumStmt") refuseVacuum(value as SqlNode);
    if (name === "intoClause") effects.push("grows");
    if (name === "FuncCall") refuseFunction(value as SqlNode);
    if (name === "CreateFunctionStmt") {
      const { statements, refusal } = readFunctionBody(value as SqlNode, sql);
      if (refusal !== null) throw new SqlRefusal("INVALID_SQL", refusal);
      bodies.push(statements);
    }
    if (name === "relpersistence" && value === "t") throw temporary();
  }
  return mostEffect(effects);
}

/** Space that was freed comes back at once by VACUUM FULL; of a whole database, or with options that take others' resources, it is the server's business. */
function refuseVacuum(vacuum: SqlNode): void {
  const options = (vacuum.options as { DefElem?: { defname?: string } }[] | undefined) ?? [];
  const isPlain = options.every(({ DefElem }) => DefElem?.defname === "full" || DefElem?.defname === "analyze");
  if (!isPlain || !Array.isArray(vacuum.rels) || vacuum.rels.length === 0)
    throw new SqlRefusal("INVALID_SQL", "VACUUM and ANALYZE need the name of a table, and no other options than FULL and ANALYZE.");
}

const temporary = (): SqlRefusal =>
  new SqlRefusal(
    "INVALID_SQL",
    "Temporary tables are refused: they outlive the statement on a shared connection. Use WITH, or an ordinary table.",
  );

function refuseKind(name: string): void {
  if (allowed.has(name)) return;
  const words = name
    .replace(/Stmt$/, "")
    .replace(/(?<=[a-z])(?=[A-Z])/g, " ")
    .toUpperCase();
  throw new SqlRefusal(
    "INVALID_SQL",
    refusedNames[name] ?? `${words} is refused: a kap may read and change its own tables, indexes, views, types and functions.`,
  );
}

function refuseFunction(call: SqlNode): void {
  const parts = (call.funcname as { String?: { sval?: string } }[] | undefined) ?? [];
  const name = (parts.at(-1)?.String?.sval ?? "").toLowerCase();
  if (refusedFunctions.test(name))
    throw new SqlRefusal(
      "INVALID_SQL",
      `${name}() is refused: what it does outlives the statement, waits, or leaves the kap's own schema.`,
    );
}
