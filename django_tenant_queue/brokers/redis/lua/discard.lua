-- discard: one bounded step over the key space: unlink what older epochs of this shard left behind.
-- KEYS[1] meta; ARGV[1..7] see lib/context; ARGV[8] cursor, '0' at first  [9] keys to look at
-- Returns 'lost' | 'moved' | {next cursor, '0' at the end, keys unlinked}
-- Keeps: the current epoch and what lies above the epochs. The prefix is percent-encoded: no character of it is a pattern.
--- include drain
--- include context
local page = call('SCAN', ARGV[8], 'MATCH', base .. '*', 'COUNT', tonumber(ARGV[9]))
local unlinked = 0
for _, key in ipairs(page[2]) do
  if string.sub(key, 1, #root) ~= root and key ~= KEYS[1] then unlinked = unlinked + call('UNLINK', key) end
end
return { page[1], unlinked }
