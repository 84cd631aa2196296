-- What a claim took is found again by its request id: the marker says how many tokens it may have given out, and until when that counts.
local SHORTEST_MS = 30000 -- the key's own end only frees memory
local function marker_of(request)
  return root .. 'request:' .. request
end

local function remember_request(request, limit)
  call('SET', marker_of(request), string.format('%.0f %.0f', limit, now + 2 * lease_us), 'PX', math.max(SHORTEST_MS, math.floor(lease_us / 500)))
end

-- token, record, token, record, ... of what is still held; nil when nothing is known of the request
local function taken_by(request)
  local limit, keep_until = string.match(call('GET', marker_of(request)) or '', '^(%d+) (%d+)$')
  if not limit or tonumber(keep_until) <= now then return nil end
  local taken, limit = {}, tonumber(limit)
  for first = 0, limit - 1, 500 do
    local tokens = {}
    for i = first, math.min(limit, first + 500) - 1 do tokens[#tokens + 1] = request .. '.' .. i end
    for _, lease in ipairs(leased(tokens)) do
      if not lease.postponed then
        taken[#taken + 1] = lease.token
        taken[#taken + 1] = lease.record
      end
    end
  end
  return taken
end
