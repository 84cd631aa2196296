-- Entries that cannot be read are dropped and counted; the first bytes of a few go back to the caller, to be logged.
local SAMPLES, SAMPLE_BYTES = 8, 48
local corrupt, dropped = {}, 0

local function drop(place, entry)
  dropped = dropped + 1
  if dropped <= SAMPLES then corrupt[dropped] = place .. ' ' .. string.sub(entry, 1, SAMPLE_BYTES) end
end

local function count_dropped()
  if dropped > 0 then call('HINCRBY', root .. 'counters', 'corrupt', dropped) end
end
