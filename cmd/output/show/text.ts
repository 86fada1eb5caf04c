import type { Screen, Style } from "../screen.ts";
import type { OutlineNode } from "./outline.ts";
import { wrapWords } from "./wrap.ts";

// Narrower lines are not wrapped any more: a deep tree needs room for text.
const MIN_TEXT_WIDTH = 12;

const NAME_STYLES: Readonly<Record<string, Style>> = { published: "cyan", address: "green" };

export function formatTextTree(root: OutlineNode, screen: Screen): string {
  return [...textLines(root, screen, "", "")].map((line) => `${line}\n`).join("");
}

/** @param first what stands before the first line @param rest what stands before all others */
function* textLines(outline: OutlineNode, screen: Screen, first: string, rest: string): Generator<string> {
  const { kind, name, details, children } = outline;
  const own = `${rest}${children.length > 0 ? "│  " : "   "}`;
  const room = screen.columns === undefined ? Infinity : Math.max(MIN_TEXT_WIDTH, screen.columns - own.length);
  const [title = "", ...more] = wrapWords([`${kind} ${name}`.trim(), ...details], room);
  yield first + styledTitle(title, outline, screen);
  for (const line of more) yield own + line;
  for (const [i, child] of children.entries()) {
    const isLast = i === children.length - 1;
    yield* textLines(child, screen, `${rest}${isLast ? "└─ " : "├─ "}`, `${rest}${isLast ? "   " : "│  "}`);
  }
}

function styledTitle(title: string, { kind, name, health }: OutlineNode, screen: Screen): string {
  if (name === "" || !title.startsWith(`${kind} ${name}`)) return title;
  const style = health === "bad" ? "red" : NAME_STYLES[kind] ?? "bold";
  return `${screen.style("dim", kind)} ${screen.style(style, name)}${title.slice(kind.length + 1 + name.length)}`;
}
