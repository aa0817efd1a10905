import { afterEach, expect, test } from "vitest";
import { BoardWriter, closeBoard, openBoard, readBoard } from "./flight-board.ts";

const open: number[] = [];
afterEach(() => {
  for (const fd of open.splice(0)) closeBoard(fd);
});

function board(): { fd: number; writer: BoardWriter } {
  const fd = openBoard();
  open.push(fd);
  return { fd, writer: new BoardWriter(fd) };
}

const id = (n: number): string => `00000000-0000-7000-8000-${String(n).padStart(12, "0")}`;
const states = (fd: number): string[] => readBoard(fd).map((run) => `${run.slot} ${run.state}`);

test("an entry is on the board before it returns, and takes earlier ends with it, near and far", () => {
  const { fd, writer } = board();
  writer.enter(0, id(0), 1, 2, 5_000, 9);
  expect(states(fd)).toEqual(["0 running"]);
  writer.end(0, "ok", 200, 3, 1);
  writer.enter(1, id(1), 1, 2, 5_000, 9);
  expect(states(fd)).toEqual(["0 ended", "1 running"]);
  writer.end(1, "error", 500, 3, 1);
  writer.enter(900, id(2), 1, 2, 5_000, 9);
  expect(states(fd)).toEqual(["0 ended", "1 ended", "900 running"]);
  expect(readBoard(fd)[1]).toMatchObject({ id: id(1), outcome: "error", httpStatus: 500, endedAt: 3 });
});

test("ends without another entry are on the board after the turn of the event loop", async () => {
  const { fd, writer } = board();
  for (const slot of [3, 40]) writer.enter(slot, id(slot), 1, 2, 5_000, 9);
  for (const slot of [3, 40]) writer.end(slot, "ok", 200, 3, 1);
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  expect(states(fd)).toEqual(["3 ended", "40 ended"]);
});

test("an end inside an entry is on the board at once, and the isolate counts as busy until the entry is left", async () => {
  const { fd, writer } = board();
  writer.enter(7, id(7), 1, 2, 5_000, 9);
  writer.end(7, "error", 500, 3, 1);
  writer.endInside(7);
  expect(readBoard(fd)[0]).toMatchObject({ slot: 7, state: "ended", isInside: true, outcome: "error", httpStatus: 500 });
  writer.left(7);
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  expect(readBoard(fd)[0]).toMatchObject({ state: "ended", isInside: false });
});
