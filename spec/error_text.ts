/**
 * How errors name values and the places where they stand.
 *
 * @module
 */

/** A value as JSON, cut to what fits into an error; `nothing` for `undefined`. */
export function excerpt(node: unknown): string {
  const json = node === undefined ? "nothing" : JSON.stringify(node);
  return json.length > 80 ? `${json.slice(0, 79)}…` : json;
}

/** The path of a member: `ipam.ranges`, `["cni.dev/attachments"]`. */
export function memberPath(path: string, key: string): string {
  if (!/^[A-Za-z_][\w-]*$/.test(key)) return `${path}[${JSON.stringify(key)}]`;
  return path === "" ? key : `${path}.${key}`;
}
