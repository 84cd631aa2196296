-- What every verb of an epoch knows.
-- KEYS[1] {dtq:<namespace>:<shard>}:meta; every other key is made from it, so all share its hash tag
-- ARGV[1] epoch  [2] now_us, '' for the server's clock  [3] mode  [4] quantum  [5] first_estimate_us  [6] estimate_keep_us  [7] lease_us
-- The verb's own arguments begin at ARGV[8]. Words returned here: 'lost' (there is no epoch), 'moved' (it is another one).
-- Numbers: integers below 2^53. They are passed to commands as numbers, or as %.0f; concatenation would keep 14 digits.
local call = redis.call
local meta = call('HMGET', KEYS[1], 'epoch', 'state')
if not meta[1] then return 'lost' end
if meta[1] ~= ARGV[1] then return 'moved' end
local rebuilding = meta[2] == 'rebuilding'
local base = string.sub(KEYS[1], 1, -5)
local root = base .. meta[1] .. ':'
local now = tonumber(ARGV[2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local by_time, quantum = ARGV[3] == 'time', tonumber(ARGV[4])
local first_estimate_us, estimate_keep_us, lease_us = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

-- floor(amount * thousandths / 1000), exact although the product may exceed 2^53
local function scaled(amount, thousandths)
  local whole = math.floor(amount / 1000)
  return whole * thousandths + math.floor((amount - whole * 1000) * thousandths / 1000)
end
