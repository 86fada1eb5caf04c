/** JSON as pages of documentation show it. @module */

const MAX_COLUMNS = 100;

/** JSON in which what fits stands on one line. */
export function formatJson(node: unknown, maxColumns = MAX_COLUMNS, indent = "", key = ""): string {
  const short = `${key}${oneLineJson(node)}`;
  if (indent.length + short.length <= maxColumns && indent !== "" || typeof node !== "object" || node === null) {
    return short;
  }
  const inner = `${indent}  `;
  const [open, close] = Array.isArray(node) ? "[]" : "{}";
  const members = Array.isArray(node)
    ? node.map((element) => formatJson(element, maxColumns, inner))
    : Object.entries(node).map(([name, value]) => formatJson(value, maxColumns, inner, `${JSON.stringify(name)}: `));
  return `${key}${open}\n${members.map((member) => inner + member).join(",\n")}\n${indent}${close}`;
}

/** JSON with blanks behind commas and colons, and inside braces. */
export function oneLineJson(node: unknown): string {
  return JSON.stringify(node, null, 1).replace(/(\[)?\n *(\])?/g, (_, open = "", close = "") => open + close || " ");
}

/** `"mtu": 1400` or `MAC=02:00:00:00:00:0a` @param path of the key */
export function formatKeyExample(path: string, example: unknown): string {
  const [, argument] = path.split("CNI_ARGS ");
  if (argument !== undefined) return `${argument}=${example}`;
  return `${JSON.stringify(path.replace(/^.*\./, ""))}: ${oneLineJson(example)}`;
}

/** Keys that the runtime or its caller sets, and not the network's configuration. */
export function isKeyFromCaller(path: string): boolean {
  return /^(runtimeConfig|args)\.|^CNI_ARGS /.test(path);
}
